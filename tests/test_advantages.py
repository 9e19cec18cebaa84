"""Advantages without a critic: worked groups, expected gradients by enumerating all groups, invariances."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import advantages

FIRST, SECOND = [0.2, 0.8, 1.4, 0.6], [8.0, 9.0, 11.0, 12.0]
# Everything that turns one (P, G) table of rewards into advantages.
PLAIN = (
    advantages.centered,
    advantages.leave_one_out,
    advantages.standardized,
    advantages.batch_standardized,
    advantages.standardized_excluding_missing,
)
SCALED = PLAIN[2:]
COMBINED = (advantages.sum_then_normalize, advantages.normalize_then_sum)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(values) -> Tensor:
    return tensor(values, dtype=torch.float64)


def groups(smallest: int = 2, largest: int = 6):
    return st.lists(st.floats(-10, 10), min_size=smallest, max_size=largest)


# ---------------------------------------------------------------- worked groups


def test_the_first_worked_group():
    # Mean 0.75, deviations −0.55, 0.05, 0.65, −0.15, their squares sum to 0.75.
    close(advantages.centered(FIRST), [-0.55, 0.05, 0.65, -0.15])
    deviation = math.sqrt(0.75 / 4)
    assert deviation == pytest.approx(0.433013, abs=5e-7)
    result = advantages.standardized(FIRST)
    close(result, [d / (deviation + 1e-4) for d in (-0.55, 0.05, 0.65, -0.15)])
    close(result, [-1.2699, 0.1154, 1.5008, -0.3463], rtol=0, atol=5e-5)
    # The sample deviation is exactly a half.
    close(advantages.standardized(FIRST, ddof=1, std_eps=0.0), [-1.1, 0.1, 1.3, -0.3])
    close(advantages.standardized(FIRST, ddof=1), [d / 0.5001 for d in (-0.55, 0.05, 0.65, -0.15)])


def test_the_second_worked_group():
    # Mean 10, deviations −2, −1, 1, 2, variance 2.5.
    close(advantages.standardized(SECOND), [-1.2648, -0.6324, 0.6324, 1.2648], rtol=0, atol=5e-5)
    close(advantages.standardized(SECOND, std_eps=0.0), [d / math.sqrt(2.5) for d in (-2, -1, 1, 2)])


def test_leave_one_out_takes_the_mean_of_the_others():
    close(advantages.leave_one_out([1.0, 2.0, 6.0]), [1 - 4, 2 - 3.5, 6 - 1.5])
    close(advantages.centered([1.0, 2.0, 6.0]), [-2.0, -1.0, 3.0])


def test_the_batch_scale_divides_every_group_by_one_deviation():
    # Group means 1 and 12; over all four the mean is 6.5 and the squared deviations sum to 131.
    table = [[0.0, 2.0], [10.0, 14.0]]
    close(advantages.batch_standardized(table, std_eps=0.0), f64([[-1, 1], [-2, 2]]) / math.sqrt(131 / 4))
    close(
        advantages.batch_standardized(table, std_eps=0.5, ddof=1), f64([[-1, 1], [-2, 2]]) / (math.sqrt(131 / 3) + 0.5)
    )


def test_gaps_count_and_not_only_ranks():
    one_ahead, two_ahead = advantages.standardized([0, 1, 2, 10]), advantages.standardized([0, 1, 9, 10])
    assert torch.equal(one_ahead.argsort(), two_ahead.argsort())
    # Means 3.25 and 5, variances 15.6875 and 20.5.
    close(one_ahead[1:3], [d / (math.sqrt(15.6875) + 1e-4) for d in (-2.25, -1.25)])
    close(two_ahead[1:3], [d / (math.sqrt(20.5) + 1e-4) for d in (-4.0, 4.0)])


@pytest.mark.parametrize("gap", [1.0, 0.01, 1e-5])
def test_of_two_rewards_the_better_gets_its_gap_over_the_gap_and_two_eps(gap):
    close(advantages.standardized([0.0, gap]), [-gap / (gap + 2e-4), gap / (gap + 2e-4)], rtol=1e-9)


def test_with_two_completions_the_size_of_the_gap_vanishes():
    for gap in (1e-3, 1.0, 1e6):
        close(advantages.standardized([0.0, gap], std_eps=0.0), [-1.0, 1.0])
        close(advantages.standardized([0.0, gap], std_eps=0.0, ddof=1), [-math.sqrt(0.5), math.sqrt(0.5)])


@pytest.mark.parametrize("size, ratio", [(2, 1.414), (8, 1.069)])
def test_the_two_deviations_differ_by_the_root_of_g_over_g_less_one(size, ratio):
    rewards = [float(i * i) for i in range(size)]
    population = advantages.standardized(rewards, std_eps=0.0)
    sample = advantages.standardized(rewards, std_eps=0.0, ddof=1)
    close(population / sample, [math.sqrt(size / (size - 1))] * size)
    assert math.sqrt(size / (size - 1)) == pytest.approx(ratio, abs=5e-4)
    # The squares sum to G for the one, to G − 1 for the other.
    close(population.square().sum(), size)
    close(sample.square().sum(), size - 1)


def test_a_large_spread_over_the_batch_is_worth_nothing_when_every_group_is_constant():
    rewards = f64([[0.0] * 4, [10.0] * 4])
    assert rewards.std().item() > 5
    for function in PLAIN:
        assert not function(rewards).any()
    assert advantages.is_constant_group(rewards).tolist() == [True, True]


# ---------------------------------------------------------------- expected gradients: every group of the worked policy

POLICY, REWARD = np.array([0.2, 0.3, 0.5]), np.array([-1.0, 0.2, 2.0])
TRUE_GRADIENT = [-0.372, -0.198, 0.570]  # p·(r − E[r]) with E[r] = 0.86


def expected_gradient(function, group_size: int = 3) -> np.ndarray:
    """Σ over all K^G groups of P(group)·(1/G)·Σ_i A_i·∇log p(a_i), on the logits; scores are e_a − p."""
    total = np.zeros(3)
    for group in itertools.product(range(3), repeat=group_size):
        signal = function(REWARD[list(group)]).numpy()
        scores = np.eye(3)[list(group)] - POLICY
        total += POLICY[list(group)].prod() * (signal @ scores) / group_size
    return total


def test_the_true_gradient_is_probability_times_reward_above_the_mean():
    np.testing.assert_allclose(POLICY * (REWARD - 0.86), TRUE_GRADIENT, rtol=RTOL)
    # Raw rewards are a baseline of zero: right in the mean.
    np.testing.assert_allclose(expected_gradient(torch.from_numpy), TRUE_GRADIENT, rtol=RTOL)


def test_the_group_mean_contains_the_sample_itself_so_a_third_of_the_gradient_is_missing():
    np.testing.assert_allclose(expected_gradient(advantages.centered), np.array(TRUE_GRADIENT) * 2 / 3, rtol=RTOL)
    for size in (2, 4):
        scaled = expected_gradient(advantages.centered, size)
        np.testing.assert_allclose(scaled, np.array(TRUE_GRADIENT) * (1 - 1 / size), rtol=RTOL)


def test_leaving_the_sample_out_of_its_baseline_gives_the_gradient_exactly():
    for size in (2, 3, 4):
        np.testing.assert_allclose(expected_gradient(advantages.leave_one_out, size), TRUE_GRADIENT, rtol=RTOL)


@pytest.mark.parametrize("ddof", [0, 1])
def test_dividing_by_a_random_deviation_changes_the_direction(ddof):
    gradient = expected_gradient(lambda r: advantages.standardized(r, ddof=ddof))
    ratios = gradient / TRUE_GRADIENT
    assert abs(gradient.sum()) < 1e-12
    assert ratios.max() / ratios.min() > 1.1


def weight_on_the_gradient(p: float, group_size: int, ddof: int = 0) -> float:
    """What standardised advantages multiply ∇p with, for rewards 0 and 1: E[A | right] − E[A | wrong]."""
    total = 0.0
    for right in range(1, group_size):
        advantage = advantages.standardized([1.0] * right + [0.0] * (group_size - right), std_eps=0.0, ddof=ddof)
        others = math.comb(group_size - 1, right - 1) * p ** (right - 1) * (1 - p) ** (group_size - right)
        total += others * advantage[0].item()
        others = math.comb(group_size - 1, right) * p**right * (1 - p) ** (group_size - 1 - right)
        total -= others * advantage[-1].item()
    return total


@pytest.mark.parametrize("size, weight", [(8, 2.609), (64, 6.736)])
def test_standardising_weighs_a_hard_prompt_far_more_than_its_difficulty_deserves(size, weight):
    assert weight_on_the_gradient(0.01, size) == pytest.approx(weight, abs=5e-4)
    # The limit of large groups, 1/√(p(1 − p)) = 10.05, is far away still, and √(G − 1) bounds it.
    assert weight_on_the_gradient(0.01, size) < math.sqrt(size - 1) < 1 / math.sqrt(0.01 * 0.99)
    assert weight_on_the_gradient(1e-9, size) == pytest.approx(math.sqrt(size - 1), rel=1e-6)


@pytest.mark.parametrize("size, share", [(4, 0.656), (8, 0.430), (16, 0.185)])
def test_the_share_of_groups_wasted_is_that_of_all_right_and_all_wrong(size, share):
    wasted = sum(
        math.comb(size, right) * 0.1**right * 0.9 ** (size - right)
        for right in range(size + 1)
        if advantages.is_constant_group([1.0] * right + [0.0] * (size - right))
    )
    assert wasted == pytest.approx(0.1**size + 0.9**size, rel=RTOL)
    assert wasted == pytest.approx(share, abs=5e-4)


def test_given_that_a_group_is_not_wasted_the_advantage_is_biased_by_difficulty():
    def mean_advantage_of_a_right_answer(p: float, *, live_only: bool) -> float:
        total = mass = 0.0
        for others in itertools.product((0.0, 1.0), repeat=3):
            group = [1.0, *others]
            if live_only and advantages.is_constant_group(group):
                continue
            probability = math.prod(p if other else 1 - p for other in others)
            total += probability * advantages.leave_one_out(group)[0].item()
            mass += probability
        return total / mass

    for p in (0.1, 0.5, 0.9):
        assert mean_advantage_of_a_right_answer(p, live_only=False) == pytest.approx(1 - p, rel=RTOL)
        # Dropping the groups in which all four are right leaves only those in which an answer looks better.
        live = mean_advantage_of_a_right_answer(p, live_only=True)
        assert live == pytest.approx((1 - p) / (1 - p**3), rel=RTOL)
        assert live > 1 - p


# ---------------------------------------------------------------- equal rewards


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3, 5, 6, 7, 10, 13, 31, 64, 100])
def test_equal_rewards_give_exactly_zero_in_every_dtype(dtype, size):
    for value in (0.1, 0.7, 1 / 3, -2.3, 1e-20, 1e20, 0.0):
        rewards = torch.full((2, size), value, dtype=dtype)
        assert not advantages.centered(rewards).any()
        assert not advantages.leave_one_out(rewards).any()
        for std_eps, ddof in itertools.product((0.0, 1e-12, 1e-4), (0, 1)):
            for function in SCALED:
                assert not function(rewards, std_eps=std_eps, ddof=ddof).any()
            sources = torch.stack([rewards, torch.full_like(rewards, 0.3)])
            for function in COMBINED:
                assert not function(sources, [0.7, 0.3], std_eps=std_eps, ddof=ddof).any()


def test_a_mean_in_float32_leaves_a_residue_that_would_look_like_an_advantage():
    rewards = torch.full((7,), 0.1)
    residue = rewards - rewards.sum() / 7
    assert residue.any(), "pick other rewards: these have no residue to guard against"
    assert (residue / (rewards.std(correction=0) + 1e-12)).abs().max() > 0.5
    assert not advantages.standardized(rewards, std_eps=1e-12).any()


def test_a_constant_group_beside_live_ones_gets_exactly_zero():
    table = torch.tensor([[0.1] * 5, [0.3, 0.9, 0.2, 0.4, 0.8]])
    for function in PLAIN:
        result = function(table)
        assert not result[0].any()
        assert result[1].all()
    for function in COMBINED:
        result = function(torch.stack([table, 3 * table]), [0.3, 0.7])
        assert not result[0].any()
        assert result[1].all()


def test_a_missing_reward_does_not_make_a_constant_group_look_live():
    rewards = torch.tensor([[0.1, math.nan, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]])
    for std_eps, ddof in itertools.product((0.0, 1e-12), (0, 1)):
        assert not advantages.standardized_excluding_missing(rewards, std_eps=std_eps, ddof=ddof).any()


def test_only_groups_of_equal_rewards_are_constant():
    assert advantages.is_constant_group([[1.0, 1.0], [1.0, 1.0 + 1e-15]]).tolist() == [True, False]
    assert advantages.is_constant_group([3.0, 3.0]).item() is True


# ---------------------------------------------------------------- missing rewards


def test_a_missing_reward_leaves_the_statistics_and_gets_zero():
    rewards = [0.2, math.nan, 0.8, 1.4, 0.6, math.nan]
    for ddof in (0, 1):
        result = advantages.standardized_excluding_missing(rewards, ddof=ddof)
        assert result[1] == result[5] == 0.0
        close(result[[0, 2, 3, 4]], advantages.standardized(FIRST, ddof=ddof))
    close(advantages.standardized_excluding_missing(rewards, std_eps=0.0, ddof=1)[0], -1.1)


@given(groups(), st.lists(st.booleans(), min_size=6, max_size=6), st.sampled_from([0, 1]))
def test_what_is_left_is_standardised_as_a_group_of_its_own(rewards, keep, ddof):
    present = tensor(keep[: len(rewards)])
    holes = torch.where(present, f64(rewards), math.nan)
    result = advantages.standardized_excluding_missing(holes, ddof=ddof)
    assert not result[~present].any()
    if present.sum() > 1:
        close(result[present], advantages.standardized(f64(rewards)[present], ddof=ddof), rtol=1e-9, atol=1e-11)
    else:
        assert not result.any()


def test_one_reward_or_none_left_gives_zeros():
    nan = math.nan
    table = [[nan, 3.0, nan], [nan, nan, nan], [1.0, nan, 3.0]]
    for ddof in (0, 1):
        result = advantages.standardized_excluding_missing(table, std_eps=0.0, ddof=ddof)
        assert not result[:2].any()
        close(result[2], [-1.0, 0.0, 1.0] if ddof == 0 else [-math.sqrt(0.5), 0.0, math.sqrt(0.5)])


def test_without_holes_it_is_the_plain_function():
    for std_eps, ddof in itertools.product((0.0, 1e-4, 0.1), (0, 1)):
        close(
            advantages.standardized_excluding_missing([FIRST, SECOND], std_eps=std_eps, ddof=ddof),
            advantages.standardized([FIRST, SECOND], std_eps=std_eps, ddof=ddof),
        )


# ---------------------------------------------------------------- several rewards


def test_summing_first_lets_the_larger_scale_decide():
    small, large = [[0.0, 1.0, 0.0, 1.0]], [[0.0, 0.0, 100.0, 100.0]]
    # 0.5·small + 2·large = 0, 0.5, 200, 200.5: mean 100.25, deviations ∓100.25 and ∓99.75.
    result = advantages.sum_then_normalize([small, large], [0.5, 2.0], std_eps=0.0)
    close(result, [[d / math.sqrt((100.25**2 + 99.75**2) / 2) for d in (-100.25, -99.75, 99.75, 100.25)]])


def test_normalising_first_gives_each_source_its_weight():
    small, large = [[0.0, 1.0, 0.0, 1.0]], [[0.0, 0.0, 100.0, 100.0]]
    # Standardised they are (−1, 1, −1, 1) and (−1, −1, 1, 1); weighed ½ and 2, the variance of the sum is 4.25.
    result = advantages.normalize_then_sum([small, large], [0.5, 2.0], std_eps=0.0)
    close(result, [[s / math.sqrt(4.25) for s in (-2.5, -1.5, 1.5, 2.5)]])
    sample = advantages.normalize_then_sum([small, large], [0.5, 2.0], std_eps=0.0, ddof=1)
    # ddof = 1 both times: each source shrinks by √¾, the sum's deviation does so too and grows by √(4/3).
    close(sample, [[s / math.sqrt(4.25) * math.sqrt(3 / 4) for s in (-2.5, -1.5, 1.5, 2.5)]])


def test_the_sum_is_normalised_over_the_batch_and_not_by_group():
    # One source, std_eps 1: group one becomes ∓½, group two ∓¾; over the batch the mean is 0 and the variance 13/32.
    result = advantages.normalize_then_sum([[[0.0, 2.0], [0.0, 6.0]]], [1.0], std_eps=1.0)
    scale = math.sqrt((0.25 + 0.5625) / 2) + 1
    close(result, [[-0.5 / scale, 0.5 / scale], [-0.75 / scale, 0.75 / scale]])


def test_the_chosen_deviation_is_used_for_the_sources_and_for_their_sum():
    # Sample deviations √2 and 3√2 of the groups, then that of the four: squares over three.
    first, second = 1 / (math.sqrt(2) + 1), 3 / (3 * math.sqrt(2) + 1)
    scale = math.sqrt(2 * (first**2 + second**2) / 3) + 1
    result = advantages.normalize_then_sum([[[0.0, 2.0], [0.0, 6.0]]], [1.0], std_eps=1.0, ddof=1)
    close(result, [[-first / scale, first / scale], [-second / scale, second / scale]])


def test_a_group_constant_for_one_source_only_still_learns_from_the_other():
    constant_then_live, live_then_constant = [[3.0, 3.0], [0.0, 1.0]], [[0.0, 1.0], [3.0, 3.0]]
    result = advantages.normalize_then_sum([constant_then_live, live_then_constant], [1.0, 2.0], std_eps=0.0)
    # Standardised and weighed: ∓2 from the second source, ∓1 from the first; the variance is 2.5.
    close(result, [[-2 / math.sqrt(2.5), 2 / math.sqrt(2.5)], [-1 / math.sqrt(2.5), 1 / math.sqrt(2.5)]])


def test_one_source_of_weight_one_summed_first_is_the_plain_function():
    table = [FIRST, SECOND]
    close(advantages.sum_then_normalize([table], [1.0], ddof=1), advantages.standardized(table, ddof=1))


@given(st.floats(0.01, 100), st.floats(-10, 10))
def test_the_scale_of_one_source_matters_only_when_summed_first(scale, shift):
    sources = f64([[FIRST, SECOND], [[1, 0, 0, 1], [0, 1, 0, 1]]])
    scaled = torch.stack([scale * sources[0] + shift, sources[1]])
    before, after = (advantages.normalize_then_sum(s, [1, 1], std_eps=0.0) for s in (sources, scaled))
    close(after, before, rtol=1e-7, atol=1e-9)
    if not 0.5 < scale < 2:
        before, after = (advantages.sum_then_normalize(s, [1, 1], std_eps=0.0) for s in (sources, scaled))
        assert (after - before).abs().max() > 0.01


# ---------------------------------------------------------------- invariances


@given(groups(), st.floats(-100, 100))
def test_a_shift_of_all_rewards_changes_nothing(rewards, shift):
    table = f64([rewards, rewards[::-1]])
    # A gap far below the shift's own rounding is lost in the addition, before any function sees it.
    assume(table.unique().numel() == 1 or table.unique().diff().min() > 1e-6)
    for function in PLAIN:
        close(function(table + shift), function(table), rtol=1e-6, atol=1e-7)


@given(groups(), st.floats(1e-3, 1e3), st.floats(0, 0.1), st.sampled_from([0, 1]))
def test_a_positive_scale_is_a_smaller_eps(rewards, scale, std_eps, ddof):
    table = f64([rewards, rewards[::-1]])
    # Far below 1e-100 the squares of the deviations underflow.
    assume(table.unique().numel() == 1 or table.unique().diff().min() > 1e-6)
    for function in SCALED:
        scaled = function(scale * table, std_eps=std_eps, ddof=ddof)
        close(scaled, function(table, std_eps=std_eps / scale, ddof=ddof), rtol=1e-8, atol=1e-8)
    for function in (advantages.centered, advantages.leave_one_out):
        close(function(scale * table), scale * function(table), rtol=1e-9, atol=1e-9)


def test_a_scale_changes_nothing_without_eps_and_something_with_it():
    close(advantages.standardized([0.002, 0.008], std_eps=0.0), advantages.standardized([2.0, 8.0], std_eps=0.0))
    close(advantages.standardized([0.002, 0.008]), [-0.003 / 0.0031, 0.003 / 0.0031])


@given(groups(3, 6), st.randoms(use_true_random=False))
def test_the_order_within_a_group_does_not_matter(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    table = f64([rewards, rewards])
    for function in PLAIN:
        close(function(table[:, order]), function(table)[:, order], rtol=1e-8, atol=1e-9)


@given(groups())
def test_the_advantages_of_a_group_sum_to_zero(rewards):
    for function in PLAIN:
        close(function(f64([rewards, rewards[::-1]])).sum(-1), [0.0, 0.0], atol=1e-9)


def test_groups_do_not_see_each_other_and_any_number_of_leading_axes_is_allowed():
    table = f64([FIRST, SECOND])
    for function in (*PLAIN[:3], PLAIN[4]):
        close(function(table), torch.stack([function(FIRST), function(SECOND)]))
        close(function(table[:, None]), function(table)[:, None])
    moved = advantages.batch_standardized(f64([FIRST, [8.0, 9.0, 11.0, 120.0]]))
    assert (moved[0] - advantages.batch_standardized(table)[0]).abs().max() > 0.1


# ---------------------------------------------------------------- defaults, dtype, refusals


def test_the_default_is_the_population_deviation_and_a_ten_thousandth():
    for function in SCALED:
        close(function([0.0, 1.0]), [-0.5 / 0.5001, 0.5 / 0.5001])
    close(advantages.sum_then_normalize([[[0.0, 1.0]]], [1.0]), [[-0.5 / 0.5001, 0.5 / 0.5001]])
    once = 0.5 / 0.5001
    close(advantages.normalize_then_sum([[[0.0, 1.0]]], [1.0]), [[-once / (once + 1e-4), once / (once + 1e-4)]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    table = tensor([FIRST, SECOND], dtype=dtype)
    for function in PLAIN:
        assert function(table).dtype == dtype
    for function in COMBINED:
        assert function(torch.stack([table, table]), [1.0, 2.0]).dtype == dtype


def test_lists_and_numpy_arrays_become_float64():
    for function in PLAIN:
        assert function(np.array([FIRST, SECOND], dtype=np.float32)).dtype == torch.float64
        assert function([[1, 2, 3]]).dtype == torch.float64
    for function in COMBINED:
        assert function([[FIRST], [SECOND]], np.float32([1, 2])).dtype == torch.float64


@pytest.mark.parametrize("function", [*PLAIN, advantages.is_constant_group])
def test_a_group_of_one_is_refused(function):
    for rewards in ([1.0], [[1.0], [2.0]], 3.0):
        with pytest.raises(ValueError, match=r"rewards must hold groups of at least 2 on the last axis; got shape \("):
            function(rewards)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rewards_that_are_not_finite_are_refused_unless_missing_ones_are_asked_for(bad):
    table = [[0.0, 1.0, bad], [0.0, 1.0, 2.0]]
    for function in (*PLAIN[:4], advantages.is_constant_group):
        with pytest.raises(ValueError, match=rf"rewards must be finite; got {bad} at index \(0, 2\)"):
            function(table)
    for function in COMBINED:
        with pytest.raises(ValueError, match=r"rewards_by_source must be finite; got .* at index \(0, 0, 2\)"):
            function([table], [1.0])
    if not math.isnan(bad):
        with pytest.raises(ValueError, match=r"rewards must be finite; got -?inf"):
            advantages.standardized_excluding_missing(table)


def test_a_guard_or_a_deviation_that_does_not_exist_is_refused():
    calls = [lambda function=function, **options: function(FIRST, **options) for function in SCALED]
    calls += [lambda function=function, **options: function([[FIRST]], [1.0], **options) for function in COMBINED]
    for call in calls:
        with pytest.raises(ValueError, match="std_eps must be at least 0; got -1e-08"):
            call(std_eps=-1e-8)
        with pytest.raises(ValueError, match="std_eps must be a finite number; got None"):
            call(std_eps=None)
        for ddof in (2, -1, 0.5, True, None):
            with pytest.raises(ValueError, match=rf"ddof must be one of \[0, 1\]; got {ddof}"):
                call(ddof=ddof)


def test_sources_and_weights_that_do_not_fit_are_refused():
    table = [FIRST, SECOND]
    for function in COMBINED:
        for sources, weights, shapes in (
            (table, [1.0, 1.0], r"\(2, 4\) and \(2,\)"),
            ([table, table], [1.0], r"\(2, 2, 4\) and \(1,\)"),
            ([table, table], 1.0, r"\(2, 2, 4\) and \(\)"),
        ):
            with pytest.raises(
                ValueError, match=rf"rewards_by_source must be \(S, P, G\) and weights \(S,\); got {shapes}"
            ):
                function(sources, weights)
        with pytest.raises(ValueError, match="weights must be finite; got nan"):
            function([table], [math.nan])
        with pytest.raises(ValueError, match="rewards_by_source must hold groups of at least 2"):
            function([[[1.0], [2.0]]], [1.0])
