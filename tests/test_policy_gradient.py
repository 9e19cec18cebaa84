"""Surrogates per token: the four clip cases, the soft and capped relatives, ratios of sequences, clip shares."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import advantages, masking, policy_gradient

RADII = {"clip_low": 0.2, "clip_high": 0.2}
# No subnormal advantage: where the two sides of the minimum tie, autograd gives each half, and half of the smallest
# number there is is 0.
LOG_RATIOS, SIGNALS = st.floats(-3.0, 3.0), st.floats(-5.0, 5.0, allow_subnormal=False)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(values) -> Tensor:
    return tensor(values, dtype=torch.float64)


def value_and_slope(function, at: float) -> tuple[float, float]:
    """Value, and derivative by autograd, of a function of one log ratio."""
    x = f64([at]).requires_grad_()
    value = function(x)
    return value.item(), torch.autograd.grad(value.sum(), x)[0].item()


# ---------------------------------------------------------------- REINFORCE


def test_the_expected_gradient_of_reinforce_is_that_of_the_expected_reward_whatever_the_baseline():
    p, rewards = f64([0.2, 0.3, 0.5]), f64([-1.0, 0.2, 2.0])
    for baseline in (0.0, 0.86, -7.0):

        def mean_over_all_actions(logits: Tensor, baseline=baseline) -> Tensor:
            return (p * policy_gradient.reinforce_surrogate(logits.log_softmax(-1), rewards - baseline)).sum()

        close(assert_gradient(mean_over_all_actions, p.log()), [-0.372, -0.198, 0.570])


def test_the_value_of_reinforce_is_advantage_times_log_probability():
    close(
        policy_gradient.reinforce_surrogate([[-1.0, -2.0], [-3.0, -4.0]], [[2.0], [-1.0]]), [[-2.0, -4.0], [3.0, 4.0]]
    )


def test_differentiate_first_and_substitute_afterwards():
    # π/stop(π) is 1 everywhere, and its gradient is that of log π.
    logits = f64([0.1, 0.4, 0.9]).requires_grad_()
    logp = logits.log_softmax(-1)
    surrogate = policy_gradient.clipped_surrogate(logp - logp.detach(), f64([2.0, -1.0, 0.5]), **RADII)
    close(surrogate.detach(), [2.0, -1.0, 0.5])
    (gradient,) = torch.autograd.grad(surrogate.sum(), logits, retain_graph=True)
    (reinforce,) = torch.autograd.grad(policy_gradient.reinforce_surrogate(logp, [2.0, -1.0, 0.5]).sum(), logits)
    close(gradient, reinforce)
    assert gradient.abs().max() > 0.1


# ---------------------------------------------------------------- the clip, case by case

# Ratio, advantage, value, and slope with respect to the *ratio*; clip 0.2 on both sides.
CASES = [
    pytest.param(1.5, 1.0, 1.2, 0.0, id="good token, already past the upper edge"),
    pytest.param(0.5, 1.0, 0.5, 1.0, id="good token, gone the wrong way"),
    pytest.param(0.5, -1.0, -0.8, 0.0, id="bad token, already past the lower edge"),
    pytest.param(1.5, -1.0, -1.5, -1.0, id="bad token, gone the wrong way"),
    pytest.param(0.9, -1.0, -0.9, -1.0, id="bad token, inside"),
    pytest.param(1.1, 2.0, 2.2, 2.0, id="good token, inside"),
    pytest.param(1.0, -3.0, -3.0, -3.0, id="on policy"),
    pytest.param(1.5, 0.0, 0.0, 0.0, id="no advantage"),
]


@pytest.mark.parametrize("ratio, advantage, value, slope", CASES)
def test_only_a_ratio_past_the_edge_its_advantage_asks_for_loses_its_gradient(ratio, advantage, value, slope):
    result = value_and_slope(lambda x: policy_gradient.clipped_surrogate(x, [advantage], **RADII), math.log(ratio))
    # The chain rule: dρ/d log ρ = ρ.
    assert result == pytest.approx((value, slope * ratio), rel=RTOL)


@given(LOG_RATIOS, SIGNALS)
def test_for_a_bad_token_the_minimum_of_products_is_the_maximum_of_ratios(log_ratio, signal):
    ratio = math.exp(log_ratio)
    other_spelling = signal * (min(ratio, 1.2) if signal > 0 else max(ratio, 0.8))
    assert policy_gradient.clipped_surrogate([log_ratio], [signal], **RADII).item() == pytest.approx(
        other_spelling, rel=RTOL
    )


def test_two_wrong_spellings_would_stop_a_bad_token_that_went_the_wrong_way():
    ratio, advantage = 1.5, -1.0
    clip_first = min(max(ratio, 0.8), 1.2) * advantage
    maximum_of_products = max(ratio * advantage, clip_first)
    assert clip_first == maximum_of_products == -1.2
    assert policy_gradient.clipped_surrogate([math.log(ratio)], [advantage], **RADII).item() == pytest.approx(-1.5)


def test_the_worked_group_is_not_clipped_anywhere():
    ratios, signal = [1.2840, 1.1052, 0.7788, 0.9048], advantages.standardized([0.2, 0.8, 1.4, 0.6])
    surrogate = policy_gradient.clipped_surrogate(np.log(ratios), signal, **RADII)
    # 1.2840 is beyond 1.2 and 0.7788 below 0.8, both against their advantage.
    close(surrogate, f64(ratios) * signal)
    fraction = policy_gradient.clip_fraction([np.log(ratios)], [signal.tolist()], [[1] * 4], **RADII)
    assert fraction == policy_gradient.ClipFraction(low=0.0, high=0.0)


def test_the_two_radii_are_apart():
    def surrogate(ratio: float, advantage: float) -> float:
        return policy_gradient.clipped_surrogate([math.log(ratio)], [advantage], clip_low=0.1, clip_high=0.3).item()

    assert surrogate(1.25, 1.0) == pytest.approx(1.25)
    assert surrogate(1.5, 1.0) == pytest.approx(1.3)
    assert surrogate(0.95, -1.0) == pytest.approx(-0.95)
    assert surrogate(0.5, -1.0) == pytest.approx(-0.9)


def test_the_analytic_gradient_holds_on_both_plateaus_and_in_both_wrong_directions():
    # Five actions, one case each: 1.5 and 0.5 with either sign, and one inside.
    ratios, signal = f64([1.5, 0.5, 0.5, 1.5, 1.1]), f64([1.0, 1.0, -1.0, -1.0, 2.0])
    logits = f64([0.3, -0.2, 0.1, 0.5, -0.7])
    old = logits.log_softmax(-1) - ratios.log()

    def total(z: Tensor) -> Tensor:
        return policy_gradient.clipped_surrogate(z.log_softmax(-1) - old, signal, **RADII).sum()

    # ∂/∂z = Σ_i w_i·(e_i − p) with w = ρA on the tokens that keep their gradient, 0 on the two plateaus.
    weights = f64([0.0, 0.5, 0.0, -1.5, 2.2])
    close(assert_gradient(total, logits), weights - weights.sum() * logits.softmax(-1))


def test_inside_the_interval_the_expectation_is_that_of_the_new_policy_in_value_and_gradient():
    p, old, signal = f64([0.22, 0.28, 0.5]), f64([0.2, 0.3, 0.5]), f64([-1.0, 0.2, 2.0])

    def mean_under_old(logits: Tensor) -> Tensor:
        return (old * policy_gradient.clipped_surrogate(logits.log_softmax(-1) - old.log(), signal, **RADII)).sum()

    expected_reward = 0.22 * -1.0 + 0.28 * 0.2 + 0.5 * 2.0
    close(mean_under_old(p.log()), expected_reward)
    close(assert_gradient(mean_under_old, p.log()), p * (signal - expected_reward))


def test_the_clip_does_not_hold_the_ratio_inside():
    # Two of three actions are praised; what the third loses pushes on after the clip has let go of the two.
    old = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    logits = old.clone().requires_grad_()
    for _ in range(20):
        surrogate = policy_gradient.clipped_surrogate(logits.log_softmax(-1) - old, [1.0, 0.5, -1.5], **RADII)
        (gradient,) = torch.autograd.grad(surrogate.mean(), logits)
        logits = (logits + 0.5 * gradient).detach().requires_grad_()
    ratios = (logits.log_softmax(-1) - old).exp()
    assert ratios.min() < 0.8 and ratios.max() > 1.2


@given(LOG_RATIOS, SIGNALS, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_the_clip_is_a_lower_bound_and_is_tight_inside(log_ratio, signal, low, high):
    clipped = policy_gradient.clipped_surrogate([log_ratio], [signal], clip_low=low, clip_high=high).item()
    plain = math.exp(log_ratio) * signal
    assert clipped <= plain + 1e-12 * abs(plain)
    if 1 - low < math.exp(log_ratio) < 1 + high:
        assert clipped == pytest.approx(plain, rel=RTOL)


@given(LOG_RATIOS, SIGNALS, st.floats(0.1, 10))
def test_surrogates_scale_with_their_advantages(log_ratio, signal, scale):
    for surrogate in (
        lambda a: policy_gradient.reinforce_surrogate([log_ratio], a),
        lambda a: policy_gradient.clipped_surrogate([log_ratio], a, **RADII),
        lambda a: policy_gradient.dual_clipped_surrogate([log_ratio], a, **RADII),
        lambda a: policy_gradient.capped_weight_surrogate([-1.0], [log_ratio], a, clip_high=2.0),
        lambda a: policy_gradient.soft_gated_surrogate([log_ratio], a),
        lambda a: policy_gradient.gamma_weighted_surrogate([[-1.0]], [[log_ratio]], [a], [[True]]),
    ):
        close(surrogate([scale * signal]), scale * surrogate([signal]), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- dual clip


@pytest.mark.parametrize(
    "ratio, advantage, value, slope",
    [
        (5.0, -1.0, -3.0, 0.0),
        (2.0, -1.0, -2.0, -1.0),
        (0.5, -1.0, -0.8, 0.0),
        (5.0, 1.0, 1.2, 0.0),
        (0.5, 1.0, 0.5, 1.0),
        (5.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_dual_clip_is_a_floor_under_bad_tokens_with_a_large_ratio(ratio, advantage, value, slope):
    result = value_and_slope(lambda x: policy_gradient.dual_clipped_surrogate(x, [advantage], **RADII), math.log(ratio))
    assert result == pytest.approx((value, slope * ratio), rel=RTOL)


@given(st.floats(-3, 3), SIGNALS)
def test_a_floor_out_of_reach_leaves_the_plain_clip(log_ratio, signal):
    close(
        policy_gradient.dual_clipped_surrogate([log_ratio], [signal], **RADII, dual_clip=25.0),
        policy_gradient.clipped_surrogate([log_ratio], [signal], **RADII),
    )


# ---------------------------------------------------------------- capped weight, soft gate


def test_the_capped_weight_is_a_constant_so_every_token_keeps_its_gradient():
    logp, log_ratio = f64([-1.0, -2.0, -3.0]).requires_grad_(), f64([4.0, 1.5, 0.5]).log().requires_grad_()
    surrogate = policy_gradient.capped_weight_surrogate(logp, log_ratio, [1.0, -2.0, -2.0], clip_high=2.0)
    close(surrogate.detach(), [2.0 * 1.0 * -1.0, 1.5 * -2.0 * -2.0, 0.5 * -2.0 * -3.0])
    gradients = torch.autograd.grad(surrogate.sum(), (logp, log_ratio), allow_unused=True)
    close(gradients[0], [2.0, -3.0, -1.0])
    assert gradients[1] is None


def test_a_cap_of_a_fifth_holds_every_weight_to_a_fifth():
    weights = policy_gradient.capped_weight_surrogate([1.0, 1.0], np.log([0.5, 3.0]), [1.0, 1.0], clip_high=0.2)
    close(weights, [0.2, 0.2])


def test_the_soft_gate_by_hand():
    # A > 0: σ(1·0.5)·4; A < 0: σ(2·0.5)·4/2.
    result = policy_gradient.soft_gated_surrogate(
        np.log([1.5, 1.5]), [1.0, -3.0], temperature_positive=1.0, temperature_negative=2.0
    )
    close(result, [4 / (1 + math.exp(-0.5)), -3 * 2 / (1 + math.exp(-1.0))])


@pytest.mark.parametrize("advantage, tau", [(2.0, 1.0), (-2.0, 1.05)])
def test_the_soft_gate_has_slope_one_on_policy_and_less_away_on_both_sides(advantage, tau):
    value, slope = value_and_slope(lambda x: policy_gradient.soft_gated_surrogate(x, [advantage]), 0.0)
    assert value == pytest.approx(2 / tau * advantage, rel=RTOL)
    assert slope == pytest.approx(advantage, rel=RTOL)
    for ratio in (0.3, 3.0):
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        _, slope = value_and_slope(lambda x: policy_gradient.soft_gated_surrogate(x, [advantage]), math.log(ratio))
        # f′(ρ) = 4σ(1 − σ), times dρ/d log ρ = ρ.
        assert slope == pytest.approx(4 * gate * (1 - gate) * advantage * ratio, rel=RTOL)
        assert abs(slope) < abs(advantage) * ratio


def test_a_token_without_advantage_is_worth_nothing_to_any_surrogate():
    for surrogate in (
        policy_gradient.soft_gated_surrogate([0.5], [0.0]),
        policy_gradient.capped_weight_surrogate([-1.0], [0.5], [0.0], clip_high=5.0),
        policy_gradient.gamma_weighted_surrogate([[-1.0]], [[0.5]], [[0.0]], [[1]]),
    ):
        assert surrogate.item() == 0.0


# ---------------------------------------------------------------- gamma weight of a sequence

MASK = [[1, 1, 0], [1, 0, 0]]


def test_the_gamma_weight_sees_the_ratio_of_the_whole_sequence():
    # Sequence ratios 2·1.5 = 3 and 0.5; w²·e^{3(1−w)} for A ≥ 0, w³·e^{2(1−w)} for A < 0.
    logp = f64([[-1.0, -2.0, -9.0], [-3.0, -9.0, -9.0]]).requires_grad_()
    log_ratio = f64([[2.0, 1.5, 7.0], [0.5, 7.0, 7.0]]).log().requires_grad_()
    first, second = 9 * math.exp(-6), 0.125 * math.exp(1)
    surrogate = policy_gradient.gamma_weighted_surrogate(logp, log_ratio, [[2.0], [-4.0]], MASK)
    expected = [[first * 2 * -1.0, first * 2 * -2.0, 0.0], [second * -4 * -3.0, 0.0, 0.0]]
    close(surrogate.detach(), expected)
    gradients = torch.autograd.grad(surrogate.sum(), (logp, log_ratio), allow_unused=True)
    close(gradients[0], [[first * 2, first * 2, 0.0], [second * -4, 0.0, 0.0]])
    assert gradients[1] is None


def gamma_weight(ratio: float, advantage: float, **options: float) -> float:
    result = policy_gradient.gamma_weighted_surrogate([[1.0]], [[math.log(ratio)]], [[advantage]], [[1]], **options)
    return result.item() / advantage


def test_the_gamma_weight_is_one_on_policy_and_largest_at_shape_over_rate():
    options = {"shape_positive": 2.5, "rate_positive": 1.5, "shape_negative": 0.5, "rate_negative": 4.0}
    for advantage, peak in ((1.0, 2.5 / 1.5), (-1.0, 0.5 / 4.0)):
        assert gamma_weight(1.0, advantage, **options) == pytest.approx(1.0, rel=RTOL)
        at_peak = gamma_weight(peak, advantage, **options)
        assert at_peak > gamma_weight(peak * 1.1, advantage, **options)
        assert at_peak > gamma_weight(peak / 1.1, advantage, **options)


def test_the_gamma_weight_by_hand_away_from_one():
    assert gamma_weight(2.0, 1.0) == pytest.approx(4 * math.exp(-3), rel=RTOL)
    assert gamma_weight(2.0, -1.0) == pytest.approx(8 * math.exp(-2), rel=RTOL)
    assert gamma_weight(2.0, 1.0, shape_positive=1.0, rate_positive=0.5) == pytest.approx(2 * math.exp(-0.5), rel=RTOL)
    assert gamma_weight(2.0, -1.0, shape_negative=1.0, rate_negative=0.5) == pytest.approx(2 * math.exp(-0.5), rel=RTOL)


def test_the_gamma_weight_vanishes_far_away_without_overflow():
    for log_ratio in (-300.0, 700.0):
        for advantage in (1.0, -1.0):
            result = policy_gradient.gamma_weighted_surrogate([[-1.0]], [[log_ratio]], [[advantage]], [[1]])
            assert abs(result.item()) < 1e-200


# ---------------------------------------------------------------- the ratio of a sequence


def test_the_sequence_ratio_is_the_geometric_mean_and_not_the_product():
    log_ratios = np.log([[2.0, 0.5], [2.0, 2.0], [9.0, 1.0]])
    close(policy_gradient.sequence_log_ratio(log_ratios, [[1, 1]] * 3).exp(), [1.0, 2.0, 3.0])
    close(masking.sum_over_tokens(log_ratios, [[1, 1]] * 3).exp(), [1.0, 4.0, 9.0])


def test_one_token_in_a_thousand_hardly_moves_the_geometric_mean():
    log_ratio = torch.zeros(1, 1000, dtype=torch.float64)
    log_ratio[0, 17] = 3.0
    assert policy_gradient.sequence_log_ratio(log_ratio, torch.ones(1, 1000)).exp().item() == pytest.approx(
        1.0030, abs=5e-5
    )


def test_a_small_mismatch_at_every_token_is_a_large_one_for_the_sequence():
    log_ratio, mask = torch.full((1, 100), 0.012, dtype=torch.float64), torch.ones(1, 100)
    assert policy_gradient.sequence_log_ratio(log_ratio, mask).exp().item() == pytest.approx(1.012, abs=5e-4)
    assert masking.sum_over_tokens(log_ratio, mask).exp().item() == pytest.approx(3.3, abs=0.05)


def test_the_mean_is_over_valid_tokens_and_so_is_its_gradient():
    log_ratio = f64([[0.3, 0.6, math.nan], [0.5, math.inf, -1e308]]).requires_grad_()
    means = policy_gradient.sequence_log_ratio(log_ratio, MASK)
    close(means.detach(), [0.45, 0.5])
    close(torch.autograd.grad(means.sum(), log_ratio)[0], [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])


# ---------------------------------------------------------------- clip shares


def test_the_clip_share_counts_by_side_what_has_lost_its_gradient():
    ratios = [[1.5, 1.5, 0.5, 0.5, 1.1], [1.3, 0.7, 0.1, 9.0, 1.0]]
    signal = [[1.0, -1.0, 1.0, -1.0, 1.0], [1.0, 1.0, -1.0, 1.0, 1.0]]
    mask = [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    # Of seven valid tokens: 1.5 and 1.3 with A > 0 past the upper edge, 0.5 with A < 0 past the lower.
    fraction = policy_gradient.clip_fraction(np.log(ratios), signal, mask, **RADII)
    assert (fraction.low, fraction.high, fraction.total) == pytest.approx((1 / 7, 2 / 7, 3 / 7), rel=RTOL)
    wider = policy_gradient.clip_fraction(np.log(ratios), signal, mask, clip_low=0.6, clip_high=0.4)
    assert (wider.low, wider.high) == pytest.approx((0.0, 1 / 7), rel=RTOL)


@given(st.lists(st.tuples(LOG_RATIOS, SIGNALS), min_size=1, max_size=8))
def test_the_clip_share_is_the_share_of_tokens_without_a_gradient(tokens):
    log_ratio, signal = (f64([list(column)]) for column in zip(*tokens, strict=True))
    leaf = log_ratio.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(policy_gradient.clipped_surrogate(leaf, signal, **RADII).sum(), leaf)
    lost = ((gradient == 0) & (signal != 0)).double().mean().item()
    fraction = policy_gradient.clip_fraction(leaf, signal, torch.ones_like(signal), **RADII)
    assert fraction.total == pytest.approx(lost, rel=RTOL)


def test_on_policy_nothing_is_clipped_and_padding_never_counts():
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    assert policy_gradient.clip_fraction(zeros, [[1.0], [-1.0]], MASK, **RADII).total == 0.0
    poisoned = torch.where(tensor(MASK).bool(), 0.5, math.nan)
    assert policy_gradient.clip_fraction(poisoned, [[1.0], [-1.0]], MASK, **RADII).high == pytest.approx(
        2 / 3, rel=RTOL
    )


def test_a_clip_share_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy_gradient.ClipFraction(low=0.0, high=0.0).low = 1.0


# ---------------------------------------------------------------- graph, dtype


def test_autograd_of_every_surrogate_is_the_derivative():
    # No ratio within 1e-3 of an edge, where the slope jumps.
    log_ratio = f64([[1.5, 0.5, 1.1], [0.5, 1.5, 0.9]]).log().requires_grad_()
    signal = f64([[1.0, 2.0, -0.5], [-1.0, -2.0, 0.7]]).requires_grad_()
    logp = f64([[-1.0, -2.0, -3.0], [-0.5, -0.1, -2.0]]).requires_grad_()
    for function in (
        lambda x, a: policy_gradient.clipped_surrogate(x, a, **RADII),
        lambda x, a: policy_gradient.dual_clipped_surrogate(x, a, **RADII, dual_clip=1.4),
        policy_gradient.soft_gated_surrogate,
        lambda x, a: policy_gradient.sequence_log_ratio(x, MASK) * a.sum(),
    ):
        assert torch.autograd.gradcheck(function, (log_ratio, signal))
    for function in (
        policy_gradient.reinforce_surrogate,
        lambda y, a: policy_gradient.capped_weight_surrogate(y, log_ratio, a, clip_high=1.3),
        lambda y, a: policy_gradient.gamma_weighted_surrogate(y, log_ratio, a, MASK),
    ):
        assert torch.autograd.gradcheck(function, (logp, signal))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    log_ratio, signal = tensor([[0.1, -0.2]], dtype=dtype), tensor([[1.0, -1.0]], dtype=dtype)
    mask = tensor([[True, True]])
    for result in (
        policy_gradient.reinforce_surrogate(log_ratio, signal),
        policy_gradient.clipped_surrogate(log_ratio, signal, **RADII),
        policy_gradient.dual_clipped_surrogate(log_ratio, signal, **RADII),
        policy_gradient.capped_weight_surrogate(log_ratio, log_ratio, signal, clip_high=5.0),
        policy_gradient.soft_gated_surrogate(log_ratio, signal),
        policy_gradient.gamma_weighted_surrogate(log_ratio, log_ratio, signal, mask),
        policy_gradient.sequence_log_ratio(log_ratio, mask),
    ):
        assert result.dtype == dtype


def test_lists_and_numpy_arrays_become_float64():
    for values in ([[0.1, -0.2]], np.array([[0.1, -0.2]], dtype=np.float32)):
        for result in (
            policy_gradient.reinforce_surrogate(values, [1, -1]),
            policy_gradient.clipped_surrogate(values, [1, -1], **RADII),
            policy_gradient.capped_weight_surrogate(values, values, [1, -1], clip_high=5),
            policy_gradient.soft_gated_surrogate(values, [1, -1]),
            policy_gradient.gamma_weighted_surrogate(values, values, [1, -1], [[1, 1]]),
            policy_gradient.sequence_log_ratio(values, [[1, 1]]),
        ):
            assert result.dtype == torch.float64


# ---------------------------------------------------------------- refusals

ON_RATIOS = {
    "clipped": lambda x, a=(1.0, -1.0), **o: policy_gradient.clipped_surrogate(x, a, **(RADII | o)),
    "dual": lambda x, a=(1.0, -1.0), **o: policy_gradient.dual_clipped_surrogate(x, a, **(RADII | o)),
    "soft": lambda x, a=(1.0, -1.0), **o: policy_gradient.soft_gated_surrogate(x, a, **o),
    "capped": lambda x, a=(1.0, -1.0): policy_gradient.capped_weight_surrogate([-1.0] * 2, x, a, clip_high=5.0),
    "gamma": lambda x, a=(1.0, -1.0), **o: policy_gradient.gamma_weighted_surrogate(
        [[-1.0] * 2], [x], a, [[1, 1]], **o
    ),
    "share": lambda x, a=(1.0, -1.0), **o: policy_gradient.clip_fraction([x], a, [[1, 1]], **(RADII | o)),
}


@pytest.mark.parametrize("name", ON_RATIOS)
def test_a_ratio_that_is_not_finite_or_overflows_is_refused(name):
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=f"log_ratio must be finite; got {bad}"):
            ON_RATIOS[name]([0.0, bad])
    with pytest.raises(ValueError, match=r"exp\(log_ratio.*\) must fit torch.float64; got log_ratio.* = 710"):
        ON_RATIOS[name]([0.0, 710.0])


@pytest.mark.parametrize("name", ON_RATIOS)
def test_advantages_that_do_not_fit_are_refused(name):
    for bad in ([1.0, 2.0, 3.0], [[[1.0, 2.0]], [[3.0, 4.0]]]):
        with pytest.raises(ValueError, match=r"advantages must have a shape that broadcasts to log(p|_ratio); got \("):
            ON_RATIOS[name]([0.0, 0.0], bad)
    with pytest.raises(ValueError, match="advantages must be finite; got nan"):
        ON_RATIOS[name]([0.0, 0.0], [1.0, math.nan])


def test_reinforce_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="logp must be finite; got -inf"):
        policy_gradient.reinforce_surrogate([-math.inf], [1.0])
    with pytest.raises(
        ValueError, match=r"advantages must have a shape that broadcasts to logp; got \(2, 1\) for logp"
    ):
        policy_gradient.reinforce_surrogate([-1.0, -2.0], [[1.0], [2.0]])


@pytest.mark.parametrize("name", ["clipped", "dual", "share"])
@pytest.mark.parametrize("edge", ["clip_low", "clip_high"])
@pytest.mark.parametrize("bad", [0.0, 1.0, 1.2, -0.2])
def test_a_radius_outside_zero_and_one_is_refused(name, edge, bad):
    with pytest.raises(ValueError, match=f"{edge} must lie strictly between 0 and 1; got {bad}"):
        ON_RATIOS[name]([0.0, 0.0], **{edge: bad})


@pytest.mark.parametrize("bad", [1.2, 0.5, -3.0])
def test_a_dual_clip_inside_the_interval_is_refused(bad):
    with pytest.raises(ValueError, match=rf"dual_clip must be greater than 1 \+ clip_high = 1.2; got {bad}"):
        ON_RATIOS["dual"]([0.0, 0.0], dual_clip=bad)
    with pytest.raises(ValueError, match="dual_clip must be a finite number; got None"):
        ON_RATIOS["dual"]([0.0, 0.0], dual_clip=None)
    with pytest.raises(ValueError, match="clip_high must be a finite number; got None"):
        ON_RATIOS["dual"]([0.0, 0.0], clip_high=None)


@pytest.mark.parametrize(
    "name, option",
    [
        ("soft", "temperature_positive"),
        ("soft", "temperature_negative"),
        ("gamma", "shape_positive"),
        ("gamma", "rate_positive"),
        ("gamma", "shape_negative"),
        ("gamma", "rate_negative"),
    ],
)
def test_a_parameter_that_is_not_positive_is_refused_by_name(name, option):
    for bad in (0, -1.0):
        with pytest.raises(ValueError, match=f"{option} must be greater than 0; got {bad}"):
            ON_RATIOS[name]([0.0, 0.0], **{option: bad})


def test_the_capped_weight_refuses_what_does_not_fit():
    for bad in (0, -0.2):
        with pytest.raises(ValueError, match=f"clip_high must be greater than 0; got {bad}"):
            policy_gradient.capped_weight_surrogate([-1.0], [0.0], [1.0], clip_high=bad)
    with pytest.raises(
        ValueError, match=r"logp and log_ratio must have the same shape; got logp \(2,\), log_ratio \(1,\)"
    ):
        policy_gradient.capped_weight_surrogate([-1.0, -2.0], [0.0], [1.0], clip_high=5.0)
    with pytest.raises(ValueError, match="logp must be finite"):
        policy_gradient.capped_weight_surrogate([math.nan], [0.0], [1.0], clip_high=5.0)


def test_masks_that_do_not_fit_are_refused():
    for call in (
        lambda mask: policy_gradient.sequence_log_ratio([[0.0, 0.0]], mask),
        lambda mask: policy_gradient.clip_fraction([[0.0, 0.0]], [[1.0]], mask, **RADII),
        lambda mask: policy_gradient.gamma_weighted_surrogate([[-1.0, -1.0]], [[0.0, 0.0]], [[1.0]], mask),
    ):
        with pytest.raises(ValueError, match="mask must keep at least one token"):
            call([[0, 0]])
        with pytest.raises(ValueError, match=r"mask must have the shape \(1, 2\)"):
            call([[1, 1, 1]])
        with pytest.raises(ValueError, match="mask must hold only"):
            call([[1, 2]])
    with pytest.raises(ValueError, match="log_ratio must be finite"):
        policy_gradient.sequence_log_ratio([[0.0, math.nan]], [[1, 1]])
    with pytest.raises(ValueError, match="logp must be finite"):
        policy_gradient.gamma_weighted_surrogate([[math.nan]], [[0.0]], [[1.0]], [[1]])
    with pytest.raises(ValueError, match="logp and mask must have the same shape"):
        policy_gradient.gamma_weighted_surrogate([[-1.0, -1.0]], [[0.0]], [[1.0]], [[1]])
