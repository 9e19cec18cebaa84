"""Preference losses: worked pairs, what the closed form makes of them, gradients, limits, refusals."""

import math

import numpy as np
import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import closed_form, masking, preference

LN2 = math.log(2)
NATS = st.floats(-30.0, 0.0)
# Policy chosen, policy rejected, reference chosen, reference rejected; two pairs.
PAIRS = ([-2.2, -1.7], [-2.8, -2.1], [-2.0, -1.9], [-2.4, -2.0])
NAMES = ("logp_chosen", "logp_rejected", "logp_ref_chosen", "logp_ref_rejected")
WITH_REFERENCE = (
    preference.log_ratio_margin,
    lambda *pairs: preference.dpo_logits(*pairs, beta=0.1),
    lambda *pairs: preference.dpo_loss(*pairs, beta=0.1),
    lambda *pairs: preference.smoothed_dpo_loss(*pairs, beta=0.1, label_smoothing=0.1),
    lambda *pairs: preference.ipo_loss(*pairs, beta=0.1),
)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(*values: float) -> Tensor:
    return tensor(values, dtype=torch.float64)


def pair_with_margin(h: float) -> tuple[list[float], ...]:
    """Log-probabilities of one pair whose log-ratio margin is h."""
    return [h - 3.0], [-2.0], [-2.5], [-1.5]


# ---------------------------------------------------------------- Bradley–Terry


def test_equal_rewards_make_the_preference_a_coin_toss():
    close(preference.preference_log_prob([3.0], [3.0]), [-LN2])


def test_a_reward_log_three_higher_wins_three_times_of_four():
    close(preference.preference_log_prob([math.log(3)], [0.0]).exp(), [0.75])


@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(-5, 5))
def test_one_of_the_two_wins_and_a_shift_of_both_rewards_changes_nothing(a, b, shift):
    one, other = preference.preference_log_prob([a], [b]), preference.preference_log_prob([b], [a])
    close(one.exp() + other.exp(), [1.0])
    close(preference.preference_log_prob([a + shift], [b + shift]), one, rtol=1e-9, atol=1e-12)
    close(one, torch.distributions.Bernoulli(logits=f64(a - b)).log_prob(f64(1.0)), atol=1e-12)


def test_rewards_far_apart_neither_overflow_nor_vanish():
    close(preference.preference_log_prob([0.0, 1e5], [1e5, 0.0]), [-1e5, 0.0])


# ---------------------------------------------------------------- DPO on the worked pairs


def test_the_margin_is_policy_gap_less_reference_gap():
    # [(−2.2 + 2.0) − (−2.8 + 2.4)] and [(−1.7 + 1.9) − (−2.1 + 2.0)].
    close(preference.log_ratio_margin(*PAIRS), [0.2, 0.3])


def test_the_worked_pairs_have_these_logits_and_this_loss():
    close(preference.dpo_logits(*PAIRS, beta=0.1), [0.02, 0.03])
    losses = preference.dpo_loss(*PAIRS, beta=0.1)
    close(losses, [math.log(1 + math.exp(-0.02)), math.log(1 + math.exp(-0.03))])
    assert losses.mean().item() == pytest.approx(0.6807284280340413, rel=RTOL)


def test_swapping_the_policy_columns_only_is_not_a_change_of_sign():
    chosen, rejected, ref_chosen, ref_rejected = PAIRS
    # [(−2.8 + 2.0) − (−2.2 + 2.4)] and [(−2.1 + 1.9) − (−1.7 + 2.0)]: the reference's own preference still counts.
    close(preference.dpo_logits(rejected, chosen, ref_chosen, ref_rejected, beta=0.1), [-0.1, -0.05])
    mean = (math.log(1 + math.exp(0.1)) + math.log(1 + math.exp(0.05))) / 2
    close(preference.dpo_loss(rejected, chosen, ref_chosen, ref_rejected, beta=0.1).mean(), mean)
    # Swapping both policy and reference is.
    close(preference.dpo_logits(rejected, chosen, ref_rejected, ref_chosen, beta=0.1), [-0.02, -0.03])


def test_the_chosen_probability_may_fall_while_the_loss_falls():
    reference = (math.log(0.2), math.log(0.3))
    before = preference.dpo_loss([math.log(0.4)], [math.log(0.4)], *([r] for r in reference), beta=0.1)
    after = preference.dpo_loss([math.log(0.3)], [math.log(0.15)], *([r] for r in reference), beta=0.1)
    # Margins log(2 / (4/3)) = log 1.5 and log(1.5 / 0.5) = log 3.
    close(before, [math.log(1 + 1.5**-0.1)])
    close(after, [math.log(1 + 3.0**-0.1)])
    assert after < before


def test_a_policy_equal_to_its_reference_has_loss_log_two():
    for beta in (0.01, 0.1, 5.0):
        close(preference.dpo_loss([-3.0], [-7.0], [-3.0], [-7.0], beta=beta), [LN2])


def test_at_the_optimal_policy_dpo_is_the_likelihood_under_the_true_rewards():
    q, rewards, beta = [0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], 0.6
    logp, logp_ref = closed_form.optimal_policy(q, rewards, beta=beta).log(), f64(*q).log()
    chosen, rejected = tensor([0, 0, 1, 1, 2, 2]), tensor([1, 2, 0, 2, 0, 1])
    pairs = logp[chosen], logp[rejected], logp_ref[chosen], logp_ref[rejected]
    # log Z has cancelled: the logits are the reward gaps themselves.
    gaps = [rewards[i] - rewards[j] for i, j in zip(chosen.tolist(), rejected.tolist(), strict=True)]
    close(preference.dpo_logits(*pairs, beta=beta), gaps)
    close(preference.dpo_loss(*pairs, beta=beta), [math.log(1 + math.exp(-gap)) for gap in gaps])


def test_a_sequence_counts_the_sum_of_its_valid_tokens():
    tokens = tensor([[-1.0, -1.2, math.nan], [-0.5, -0.9, -0.3]], dtype=torch.float64)
    mask = tensor([[True, True, False], [True, True, True]])
    close(masking.sum_over_tokens(tokens, mask), [-2.2, -1.7])
    close(preference.dpo_logits(masking.sum_over_tokens(tokens, mask), *PAIRS[1:], beta=0.1), [0.02, 0.03])


def test_means_over_a_hundred_tokens_need_a_hundred_times_the_beta():
    sums = [[-120.0], [-150.0], [-130.0], [-140.0]]
    means = [[total[0] / 100] for total in sums]
    close(preference.dpo_loss(*means, beta=10.0), preference.dpo_loss(*sums, beta=0.1))
    assert (preference.dpo_loss(*means, beta=0.1) - LN2).abs() < 0.02


# ---------------------------------------------------------------- DPO: gradients and optima


def test_the_dpo_gradient_is_beta_times_the_probability_of_the_wrong_order():
    for beta in (0.1, 2.0):
        columns = f64(*(row[0] for row in PAIRS))
        gradient = assert_gradient(lambda c, beta=beta: preference.dpo_loss(*c.unbind(), beta=beta), columns)
        wrong = 1 / (1 + math.exp(beta * 0.2))
        close(gradient, [-beta * wrong, beta * wrong, beta * wrong, -beta * wrong])


def test_without_a_margin_the_first_gradient_is_half_of_beta():
    logp = f64(-3.0).requires_grad_()
    for beta in (0.1, 0.5):
        (gradient,) = torch.autograd.grad(preference.dpo_loss(logp, [-7.0], [-3.0], [-7.0], beta=beta).sum(), logp)
        close(gradient, [-beta / 2])


@pytest.mark.parametrize("beta, margin", [(0.1, 10.986), (0.5, 2.197)])
def test_a_preference_of_three_to_one_is_met_at_the_margin_log_three_over_beta(beta, margin):
    h = f64(math.log(3) / beta).requires_grad_()
    assert h.item() == pytest.approx(margin, abs=5e-4)
    zero = [0.0]
    expected_loss = 0.75 * preference.dpo_loss(h, zero, zero, zero, beta=beta)
    expected_loss = expected_loss + 0.25 * preference.dpo_loss(zero, h, zero, zero, beta=beta)
    (gradient,) = torch.autograd.grad(expected_loss.sum(), h)
    close(gradient, [0.0], atol=1e-15)


def test_a_certain_preference_pushes_the_dpo_margin_without_end_and_the_ipo_margin_to_its_target():
    for beta in (0.1, 1.0):
        margins = f64(0.0, 1.0, 10.0, 30.0).requires_grad_()
        zeros = torch.zeros(4)
        (slope,) = torch.autograd.grad(preference.dpo_loss(margins, zeros, zeros, zeros, beta=beta).sum(), margins)
        assert (slope < 0).all()
        target = f64(1 / (2 * beta)).requires_grad_()
        loss = preference.ipo_loss(target, [0.0], [0.0], [0.0], beta=beta)
        assert loss.item() == torch.autograd.grad(loss.sum(), target)[0].item() == 0.0


def test_extreme_margins_give_finite_losses_and_gradients():
    logp = f64(-1e6, -1.0).requires_grad_()
    loss = preference.dpo_loss(logp, [-1.0, -1e6], [-1.0, -1.0], [-1.0, -1.0], beta=1.0)
    close(loss, [1e6 - 1, 0.0])
    close(torch.autograd.grad(loss.sum(), logp)[0], [-1.0, 0.0])


@given(NATS, NATS, NATS, NATS, st.floats(-3, 3))
def test_only_the_margin_matters(chosen, rejected, ref_chosen, ref_rejected, shift):
    for loss in WITH_REFERENCE:
        value = loss([chosen], [rejected], [ref_chosen], [ref_rejected])
        for moved in (
            ([chosen + shift], [rejected + shift], [ref_chosen], [ref_rejected]),
            ([chosen], [rejected], [ref_chosen + shift], [ref_rejected + shift]),
            ([chosen + shift], [rejected], [ref_chosen + shift], [ref_rejected]),
            ([chosen], [rejected + shift], [ref_chosen], [ref_rejected + shift]),
        ):
            close(loss(*moved), value, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- smoothed DPO, IPO


def test_without_smoothing_it_is_dpo():
    assert torch.equal(
        preference.smoothed_dpo_loss(*PAIRS, beta=0.1, label_smoothing=0.0), preference.dpo_loss(*PAIRS, beta=0.1)
    )


def test_smoothing_is_the_expected_loss_when_that_share_of_labels_is_flipped():
    chosen, rejected, ref_chosen, ref_rejected = PAIRS
    right = preference.dpo_loss(*PAIRS, beta=0.5)
    flipped = preference.dpo_loss(rejected, chosen, ref_rejected, ref_chosen, beta=0.5)
    smoothed = preference.smoothed_dpo_loss(*PAIRS, beta=0.5, label_smoothing=0.2)
    close(smoothed, 0.8 * right + 0.2 * flipped)
    close(smoothed[0], 0.8 * math.log(1 + math.exp(-0.1)) + 0.2 * math.log(1 + math.exp(0.1)))
    close(preference.smoothed_dpo_loss(*PAIRS, beta=0.5, label_smoothing=0.49), 0.51 * right + 0.49 * flipped)


def test_the_smoothed_loss_is_least_where_the_logit_is_that_of_the_clean_share():
    beta, smoothing = 0.5, 0.2

    def loss(h: Tensor) -> Tensor:
        zero = torch.zeros_like(h)
        return preference.smoothed_dpo_loss(h, zero, zero, zero, beta=beta, label_smoothing=smoothing).sum()

    best = f64(math.log(0.8 / 0.2) / beta)
    close(assert_gradient(loss, best), [0.0], atol=1e-15)
    assert loss(best) < min(loss(best - 0.1), loss(best + 0.1))


def test_the_ipo_loss_of_the_worked_pairs_is_the_squared_distance_from_five():
    close(preference.ipo_loss(*PAIRS, beta=0.1), [4.8**2, 4.7**2])


def test_the_ipo_gradient_is_twice_the_distance():
    columns = f64(*(row[0] for row in PAIRS))
    gradient = assert_gradient(lambda c: preference.ipo_loss(*c.unbind(), beta=0.5), columns)
    close(gradient, [2 * (0.2 - 1), -2 * (0.2 - 1), -2 * (0.2 - 1), 2 * (0.2 - 1)])


def test_with_three_preferences_of_four_ipo_stops_halfway_to_its_target():
    zero = [0.0]

    def expected_loss(h: Tensor) -> Tensor:
        kept = preference.ipo_loss(h, zero, zero, zero, beta=0.1)
        flipped = preference.ipo_loss(zero, h, zero, zero, beta=0.1)
        return (0.75 * kept + 0.25 * flipped).sum()

    close(assert_gradient(expected_loss, f64(2.5)), [0.0], atol=1e-12)


# ---------------------------------------------------------------- SimPO


def test_simpo_asks_for_its_margin_before_it_is_at_log_two():
    # 2·(−1.0 − (−1.5)) − 1 = 0.
    close(preference.simpo_loss([-1.0], [-1.5], beta=2.0, margin=1.0), [LN2])
    close(preference.simpo_loss([-1.0], [-1.5], beta=2.0, margin=0.4), [math.log(1 + math.exp(-0.6))])


def test_simpo_without_a_margin_is_dpo_without_a_reference():
    zeros = [0.0, 0.0]
    close(
        preference.simpo_loss(*PAIRS[:2], beta=2.0, margin=0.0),
        preference.dpo_loss(*PAIRS[:2], zeros, zeros, beta=2.0),
    )


def test_the_simpo_gradient_is_beta_times_the_probability_of_missing_the_margin():
    gradient = assert_gradient(lambda c: preference.simpo_loss(*c.unbind(), beta=2.0, margin=1.0), f64(-1.0, -1.5))
    close(gradient, [-1.0, 1.0])


# ---------------------------------------------------------------- KTO


def test_a_kto_completion_at_the_reference_point_costs_half_its_weight():
    loss = preference.kto_loss(
        [-3.0, -3.0],
        [-4.0, -4.0],
        [True, False],
        beta=0.1,
        kl_reference=1.0,
        desirable_weight=1.5,
        undesirable_weight=0.5,
    )
    close(loss, [0.75, 0.25])


def test_kto_by_hand_on_either_side_of_the_reference_point():
    # Log ratios 3 and −1, both less z₀ = 0.5, times 0.2: 0.5 and −0.3.
    loss = preference.kto_loss([-1.0, -5.0], [-4.0, -4.0], [True, True], beta=0.2, kl_reference=0.5)
    close(loss, [1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(-0.3))])
    loss = preference.kto_loss([-1.0, -5.0], [-4.0, -4.0], [False, False], beta=0.2, kl_reference=0.5)
    close(loss, [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.3))])


@given(NATS, NATS, st.floats(0, 5), st.floats(0.1, 3), st.floats(0.1, 3))
def test_the_kto_loss_is_bounded_by_its_weight_and_the_two_labels_share_it(logp, logp_ref, z0, up, down):
    loss = preference.kto_loss(
        [logp, logp],
        [logp_ref, logp_ref],
        [True, False],
        beta=0.3,
        kl_reference=z0,
        desirable_weight=up,
        undesirable_weight=down,
    )
    assert (loss >= 0).all() and loss[0] <= up and loss[1] <= down
    close(loss[0] / up + loss[1] / down, 1.0)


def test_kto_pushes_good_completions_up_and_bad_ones_down_most_at_the_reference_point():
    def total(logp: Tensor) -> Tensor:
        return preference.kto_loss(
            logp, [-4.0] * 4, [True, False, True, False], beta=0.4, kl_reference=1.0, undesirable_weight=2.0
        ).sum()

    gradient = assert_gradient(total, f64(-3.0, -3.0, 6.0, 6.0))
    steepness = 0.4 * math.exp(3.6) / (1 + math.exp(3.6)) ** 2
    close(gradient, [-0.1, 0.2, -steepness, 2 * steepness])


# ---------------------------------------------------------------- graph, dtype, refusals


def test_autograd_of_every_loss_is_the_derivative():
    columns = tuple(f64(*row).requires_grad_() for row in PAIRS)
    for loss in WITH_REFERENCE:
        assert torch.autograd.gradcheck(loss, columns)
    assert torch.autograd.gradcheck(preference.preference_log_prob, columns[:2])
    assert torch.autograd.gradcheck(lambda a, b: preference.simpo_loss(a, b, beta=2.0, margin=0.5), columns[:2])
    labels = [True, False]
    assert torch.autograd.gradcheck(
        lambda a, b: preference.kto_loss(a, b, labels, beta=0.2, kl_reference=0.1), columns[:2]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    pairs = [tensor(row, dtype=dtype) for row in PAIRS]
    for loss in WITH_REFERENCE:
        assert loss(*pairs).dtype == dtype
    assert preference.preference_log_prob(*pairs[:2]).dtype == dtype
    assert preference.simpo_loss(*pairs[:2], beta=2.0, margin=0.5).dtype == dtype
    kto = preference.kto_loss(*pairs[:2], tensor([True, False]), beta=0.1, kl_reference=0.0, undesirable_weight=2.0)
    assert kto.dtype == dtype


def test_numpy_float32_becomes_float64():
    for loss in WITH_REFERENCE:
        assert loss(*(np.array(row, dtype=np.float32) for row in PAIRS)).dtype == torch.float64


def test_lists_of_tensors_keep_their_gradient():
    logp = tensor(-2.2, dtype=torch.float64, requires_grad=True)
    loss = preference.dpo_loss([logp], [-2.8], [-2.0], [-2.4], beta=0.1)
    close(torch.autograd.grad(loss.sum(), logp)[0], -0.1 / (1 + math.exp(0.02)))


@pytest.mark.parametrize("position, name", list(enumerate(NAMES)))
@pytest.mark.parametrize("loss", WITH_REFERENCE)
def test_a_pair_that_does_not_fit_is_refused_by_name(loss, position, name):
    columns = [list(row) for row in PAIRS]
    columns[position][1] = math.nan
    with pytest.raises(ValueError, match=rf"^{name} must be finite; got nan at index \(1,\)"):
        loss(*columns)
    columns[position] = [-1.0]
    with pytest.raises(ValueError, match=rf"{' and '.join(NAMES)} must have the same shape; got .*{name} \(1,\)"):
        loss(*columns)


@pytest.mark.parametrize("beta", [0, -0.1, math.nan, math.inf, "0.1"], ids=repr)
def test_a_beta_that_is_not_positive_is_refused(beta):
    for call in (
        lambda: preference.dpo_logits(*PAIRS, beta=beta),
        lambda: preference.dpo_loss(*PAIRS, beta=beta),
        lambda: preference.smoothed_dpo_loss(*PAIRS, beta=beta, label_smoothing=0.1),
        lambda: preference.ipo_loss(*PAIRS, beta=beta),
        lambda: preference.simpo_loss(*PAIRS[:2], beta=beta, margin=0.5),
        lambda: preference.kto_loss(*PAIRS[:2], [True, False], beta=beta, kl_reference=0.0),
    ):
        with pytest.raises(ValueError, match=r"beta must be .*; got "):
            call()


@pytest.mark.parametrize("smoothing", [-0.01, 0.5, 0.9])
def test_a_smoothing_outside_its_range_is_refused(smoothing):
    with pytest.raises(ValueError, match=rf"label_smoothing must be at least 0 and below 0\.5; got {smoothing}"):
        preference.smoothed_dpo_loss(*PAIRS, beta=0.1, label_smoothing=smoothing)
    with pytest.raises(ValueError, match="label_smoothing must be a finite number; got None"):
        preference.smoothed_dpo_loss(*PAIRS, beta=0.1, label_smoothing=None)


def test_rewards_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="reward_chosen must be finite; got inf"):
        preference.preference_log_prob([math.inf], [0.0])
    with pytest.raises(ValueError, match="reward_rejected must be finite; got nan"):
        preference.preference_log_prob([0.0], [math.nan])
    with pytest.raises(ValueError, match="reward_chosen and reward_rejected must have the same shape"):
        preference.preference_log_prob([0.0, 1.0], [0.0])


def test_simpo_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="margin must be at least 0; got -1"):
        preference.simpo_loss([-1.0], [-1.0], beta=2.0, margin=-1)
    with pytest.raises(ValueError, match="mean_logp_chosen and mean_logp_rejected must have the same shape"):
        preference.simpo_loss([-1.0], [-1.0, -2.0], beta=2.0, margin=0.5)
    with pytest.raises(ValueError, match="mean_logp_chosen must be finite"):
        preference.simpo_loss([math.nan], [-1.0], beta=2.0, margin=0.5)
    with pytest.raises(ValueError, match="mean_logp_rejected must be finite"):
        preference.simpo_loss([-1.0], [math.nan], beta=2.0, margin=0.5)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"logp": [math.nan, -1.0]}, "logp must be finite"),
        ({"logp_ref": [math.inf, -1.0]}, "logp_ref must be finite"),
        ({"logp_ref": [-1.0]}, "logp and logp_ref and desirable must have the same shape"),
        ({"desirable": [True]}, r"logp and logp_ref and desirable must have the same shape; got .*desirable \(1,\)"),
        ({"desirable": [1, 0]}, "desirable must hold True or False; got dtype torch.int64"),
        ({"desirable": "up"}, "desirable must hold True or False; got 'up'"),
        ({"desirable": [[True], []]}, "desirable must hold True or False; got "),
        ({"kl_reference": -0.1}, "kl_reference must be at least 0; got -0.1"),
        ({"desirable_weight": 0}, "desirable_weight must be greater than 0; got 0"),
        ({"undesirable_weight": -1}, "undesirable_weight must be greater than 0; got -1"),
    ],
)
def test_kto_refuses_what_does_not_fit(changed, message):
    arguments = {"logp": [-1.0, -2.0], "logp_ref": [-1.0, -2.0], "desirable": [True, False], "kl_reference": 0.0}
    with pytest.raises(ValueError, match=message):
        preference.kto_loss(**(arguments | changed), beta=0.1)
