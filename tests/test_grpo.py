"""The GRPO family: worked batches, analytic gradients, expectations by enumeration, limits, padding, refusals."""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import advantages, grpo

LOSSES = {
    "grpo": grpo.grpo_loss,
    "bnpo": grpo.bnpo_loss,
    "dapo": grpo.dapo_loss,
    "dr_grpo": lambda *batch, **options: grpo.dr_grpo_loss(*batch, **({"max_length": 5} | options)),
    "gspo": grpo.gspo_loss,
    "luspo": grpo.luspo_loss,
    "cispo": grpo.cispo_loss,
    "sapo": grpo.sapo_loss,
    "vespo": grpo.vespo_loss,
}
TOKEN_CLIP = ("grpo", "bnpo", "dapo", "dr_grpo")
SEQUENCE_CLIP = ("gspo", "luspo")
SLICED = ("dapo", "cispo", "vespo")
POISON = (math.nan, math.inf, -math.inf, 1e308, -1e308)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(values) -> Tensor:
    return tensor(values, dtype=torch.float64)


def gradient_of(loss, logp: Tensor, *rest, **options) -> Tensor:
    leaf = logp.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, *rest, **options), leaf)[0]


# ---------------------------------------------------------------- the worked batch

OLD = f64([[0.30, 0.25, 0.20], [0.18, 0.22, 0.20], [0.12, 0.16, 0.20], [0.25, 0.20, 0.18]]).log()
SHIFTS = (0.25, 0.10, -0.25, -0.10)
NEW = OLD + f64(SHIFTS)[:, None]
REF = OLD - 0.05
ALL_ONES = torch.ones(4, 3, dtype=torch.bool)
SIGNAL = advantages.standardized([0.2, 0.8, 1.4, 0.6])


def test_the_worked_batch_has_this_loss():
    # Nothing is clipped, and Δ = −(shift + 0.05) is the same for all three tokens of a row.
    rows = zip(SHIFTS, SIGNAL.tolist(), strict=True)
    by_hand = sum(-math.exp(s) * a + 0.04 * (math.exp(-s - 0.05) + s + 0.05 - 1) for s, a in rows) / 4
    loss = grpo.grpo_loss(NEW, OLD, REF, SIGNAL, ALL_ONES)
    close(loss, by_hand)
    assert loss.item() == pytest.approx(0.162629, abs=5e-7)
    mean_k3 = sum(math.exp(-s - 0.05) + s + 0.05 - 1 for s in SHIFTS) / 4
    assert mean_k3 == pytest.approx(0.018550, abs=5e-7)
    close((loss - grpo.grpo_loss(NEW, OLD, None, SIGNAL, ALL_ONES, beta=0.0)) / 0.04, mean_k3)


def test_the_worked_batch_has_this_gradient():
    # Per token: (−ρA + β(1 − e^Δ))/12.
    rows = [
        (-math.exp(s) * a + 0.04 * (1 - math.exp(-s - 0.05))) / 12 for s, a in zip(SHIFTS, SIGNAL.tolist(), strict=True)
    ]
    gradient = assert_gradient(lambda logp: grpo.grpo_loss(logp, OLD, REF, SIGNAL, ALL_ONES), NEW)
    close(gradient, f64(rows)[:, None].expand(4, 3))


# ---------------------------------------------------------------- each loss by hand: two sequences, lengths 2 and 1

RATIOS = f64([[1.5, 0.6], [1.1, 7.0]])
LOGP = f64([[-1.0, -2.0], [-3.0, -9.0]])
TWO_OLD = LOGP - RATIOS.log()
TWO_REF = LOGP + f64([[0.2, -0.3], [0.4, 9.0]])
TWO_SIGNAL = f64([1.0, -2.0])
TWO_MASK = tensor([[True, True], [True, False]])
K3 = [math.exp(d) - d - 1 for d in (0.2, -0.3, 0.4)]
GEOMETRIC = math.sqrt(0.9)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# The surrogate of the three valid tokens, and which ratio weighs their k3.
TOKENS = {
    "grpo": ([1.2, 0.6, -2.2], [1.5, 0.6, 1.1]),
    "bnpo": ([1.2, 0.6, -2.2], [1.5, 0.6, 1.1]),
    "dapo": ([1.28, 0.6, -2.2], [1.5, 0.6, 1.1]),
    "dr_grpo": ([1.2, 0.6, -2.2], [1.5, 0.6, 1.1]),
    "gspo": ([GEOMETRIC, GEOMETRIC, -2.2], [GEOMETRIC, GEOMETRIC, 1.1]),
    "luspo": ([GEOMETRIC, GEOMETRIC, -2.2], [GEOMETRIC, GEOMETRIC, 1.1]),
    "cispo": ([1.5 * -1.0, 0.6 * -2.0, 1.1 * -2 * -3.0], [1.5, 0.6, 1.1]),
    "sapo": ([4 * sigmoid(0.5), 4 * sigmoid(-0.4), -2 * 4 / 1.05 * sigmoid(1.05 * 0.1)], [1.5, 0.6, 1.1]),
    "vespo": (
        [0.81 * math.exp(0.3) * -1.0, 0.81 * math.exp(0.3) * -2.0, 1.331 * math.exp(-0.2) * -2 * -3.0],
        [1.5, 0.6, 1.1],
    ),
}


def aggregated(name: str, tokens: list[float]) -> float:
    first, second, third = tokens
    if name in ("grpo", "gspo", "sapo"):
        return ((first + second) / 2 + third) / 2
    if name == "luspo":
        return (first + second + third) / 2
    return (first + second + third) / (10 if name == "dr_grpo" else 3)


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_by_hand_without_a_reference(name):
    loss = LOSSES[name](LOGP, TWO_OLD, None, TWO_SIGNAL, TWO_MASK, beta=0.0)
    assert loss.shape == ()
    close(loss, -aggregated(name, TOKENS[name][0]))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_each_loss_by_hand_with_its_penalty(name, weighted):
    surrogate, ratios = TOKENS[name]
    penalty = [k * r if weighted else k for k, r in zip(K3, ratios, strict=True)]
    tokens = [s - 0.3 * k for s, k in zip(surrogate, penalty, strict=True)]
    loss = LOSSES[name](LOGP, TWO_OLD, TWO_REF, TWO_SIGNAL, TWO_MASK, beta=0.3, kl_ratio_weighted=weighted)
    close(loss, -aggregated(name, tokens))


def test_the_options_reach_the_surrogates():
    batch = LOGP, TWO_OLD, None, TWO_SIGNAL, TWO_MASK
    for name in TOKEN_CLIP:
        loss = LOSSES[name](*batch, beta=0.0, clip_low=0.05, clip_high=0.4)
        close(loss, -aggregated(name, [1.4, 0.6, -2.2]))
        bad = LOSSES[name](LOGP, TWO_OLD, None, -TWO_SIGNAL, TWO_MASK, beta=0.0, clip_low=0.3, clip_high=0.05)
        close(bad, -aggregated(name, [-1.5, -0.7, 2.1]))
    for name in SEQUENCE_CLIP:
        loss = LOSSES[name](*batch, clip_low=0.01, clip_high=0.01)
        close(loss, -aggregated(name, [GEOMETRIC, GEOMETRIC, -2.2]))
        bad = LOSSES[name](LOGP, TWO_OLD, None, -TWO_SIGNAL, TWO_MASK, clip_low=0.01, clip_high=0.02)
        close(bad, -aggregated(name, [-0.99, -0.99, 2.04]))
    close(grpo.cispo_loss(*batch, clip_high=1.2), -(1.2 * -1.0 + 0.6 * -2.0 + 1.1 * -2 * -3.0) / 3)
    soft = grpo.sapo_loss(*batch, temperature_positive=2.0, temperature_negative=3.0)
    close(soft, -((2 * sigmoid(1.0) + 2 * sigmoid(-0.8)) / 2 - 2 * 4 / 3 * sigmoid(0.3)) / 2)
    shaped = grpo.vespo_loss(*batch, shape_positive=1.0, rate_positive=2.0, shape_negative=2.0, rate_negative=1.0)
    first, second = 0.9 * math.exp(0.2), 1.21 * math.exp(-0.1)
    close(shaped, -(first * -3.0 + second * -2 * -3.0) / 3)
    close(grpo.dr_grpo_loss(*batch, max_length=2), -(1.2 + 0.6 - 2.2) / 4)
    for name in SLICED:
        close(LOSSES[name](*batch, token_count=6), LOSSES[name](*batch) / 2)


DEFAULTS = {
    "grpo": {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.04},
    "bnpo": {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.04},
    "dapo": {"clip_low": 0.2, "clip_high": 0.28, "beta": 0.0},
    "dr_grpo": {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.0, "max_length": 5},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4, "beta": 0.0},
    "luspo": {"clip_low": 3e-4, "clip_high": 4e-4, "beta": 0.0},
    "cispo": {"clip_high": 5.0, "beta": 0.0},
    "sapo": {"temperature_positive": 1.0, "temperature_negative": 1.05, "beta": 0.0},
    "vespo": {"shape_positive": 2.0, "rate_positive": 3.0, "shape_negative": 3.0, "rate_negative": 2.0, "beta": 0.0},
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_defaults_are_those_of_the_papers_and_nothing_is_weighted_unasked(name):
    for scale in (1.0, 1e-3):
        # Ratios far from 1, and near it, where only the narrow radii of the sequence level bite.
        old = LOGP - scale * RATIOS.log() * 5
        for signal in (TWO_SIGNAL, -TWO_SIGNAL):
            batch = LOGP, old, TWO_REF, signal, TWO_MASK
            named = LOSSES[name](*batch, **DEFAULTS[name], kl_ratio_weighted=False)
            assert torch.equal(LOSSES[name](*batch), named)


# ---------------------------------------------------------------- gradients


def test_surrogate_and_penalty_have_the_analytic_gradient_on_plateaus_and_in_wrong_directions():
    # Six actions of one policy, one token each; ratios 1.5, 0.5 with either sign, 1.1 and 0.9.
    ratios, signal = f64([1.5, 0.5, 0.5, 1.5, 1.1, 0.9]), f64([1.0, 1.0, -1.0, -1.0, 2.0, -0.5])
    logits = f64([0.3, -0.2, 0.1, 0.5, -0.7, 0.2])
    old = (logits.log_softmax(-1) - ratios.log())[:, None]
    ref = f64([0.1, 0.3, -0.4, 0.2, 0.0, 0.6]).log_softmax(-1)[:, None]
    mask = torch.ones(6, 1, dtype=torch.bool)

    for beta, weighted in ((0.0, False), (0.04, False), (0.7, False), (0.7, True)):

        def loss(z: Tensor, beta=beta, weighted=weighted) -> Tensor:
            logp = z.log_softmax(-1)[:, None]
            return grpo.grpo_loss(logp, old, ref, signal, mask, beta=beta, kl_ratio_weighted=weighted)

        p, delta = logits.softmax(-1), ref[:, 0] - logits.log_softmax(-1)
        # Each token's derivative by its log-probability, then ∂ log p_i/∂z = e_i − p.
        surrogate = f64([0.0, 0.5, 0.0, -1.5, 2.2, -0.45])
        penalty = ratios * -delta if weighted else 1 - delta.exp()
        weights = (-surrogate + beta * penalty) / 6
        close(assert_gradient(loss, logits), weights - weights.sum() * p)


SMOOTH_OLD = LOGP - f64([[0.1, -0.3], [0.05, 2.0]])


@pytest.mark.parametrize("name", [*TOKEN_CLIP, *SEQUENCE_CLIP, "sapo"])
@pytest.mark.parametrize("beta, weighted", [(0.0, False), (0.3, False), (0.3, True)])
def test_autograd_of_the_ratio_losses_is_the_derivative(name, beta, weighted):
    assert_gradient(
        lambda logp: LOSSES[name](
            logp, SMOOTH_OLD, TWO_REF, TWO_SIGNAL, TWO_MASK, beta=beta, kl_ratio_weighted=weighted
        ),
        LOGP,
    )


@pytest.mark.parametrize("name, weights", [("cispo", [1.5, 0.6, -2.2]), ("vespo", None)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_weighted_losses_differentiate_the_log_probability_and_the_penalty_only(name, weights, weighted):
    weights = weights or [0.81 * math.exp(0.3)] * 2 + [-2 * 1.331 * math.exp(-0.2)]
    # d k3/d logp = 1 − e^Δ; with ρ in the graph, d(ρ·k3)/d logp = ρ·(k3 + 1 − e^Δ) = −ρΔ.
    deltas, ratios = (0.2, -0.3, 0.4), (1.5, 0.6, 1.1)
    penalty = [-r * d if weighted else 1 - math.exp(d) for d, r in zip(deltas, ratios, strict=True)]
    expected = [(-w + 0.3 * k) / 3 for w, k in zip(weights, penalty, strict=True)]
    gradient = gradient_of(
        LOSSES[name], LOGP, TWO_OLD, TWO_REF, TWO_SIGNAL, TWO_MASK, beta=0.3, kl_ratio_weighted=weighted
    )
    close(gradient, [expected[:2], [expected[2], 0.0]])


def test_one_clipped_sequence_loses_all_its_tokens_and_no_other():
    # Geometric means √0.9 < 1 − 3e-4 with A < 0, and 1.1 > 1 + 4e-4 with A < 0.
    for name in SEQUENCE_CLIP:
        gradient = gradient_of(LOSSES[name], LOGP, TWO_OLD, None, f64([-1.0, -2.0]), TWO_MASK)
        assert not gradient[0].any()
        close(gradient[1], [1.1 * 2.0 / 2, 0.0])


# ---------------------------------------------------------------- on policy

ON_POLICY_SCALE = {
    "grpo": f64([[1 / 4, 1 / 4], [1 / 2, 0.0]]),
    "bnpo": f64([[1 / 3, 1 / 3], [1 / 3, 0.0]]),
    "dapo": f64([[1 / 3, 1 / 3], [1 / 3, 0.0]]),
    "dr_grpo": f64([[1 / 10, 1 / 10], [1 / 10, 0.0]]),
    "gspo": f64([[1 / 4, 1 / 4], [1 / 2, 0.0]]),
    "luspo": f64([[1 / 2, 1 / 2], [1 / 2, 0.0]]),
    "cispo": f64([[1 / 3, 1 / 3], [1 / 3, 0.0]]),
    "sapo": f64([[1 / 4, 1 / 4], [1 / 2, 0.0]]),
    "vespo": f64([[1 / 3, 1 / 3], [1 / 3, 0.0]]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_every_loss_has_the_gradient_of_reinforce_at_its_own_token_weights(name):
    gradient = gradient_of(LOSSES[name], LOGP, LOGP, None, TWO_SIGNAL, TWO_MASK, beta=0.0)
    close(gradient, -ON_POLICY_SCALE[name] * TWO_SIGNAL[:, None])


def test_at_the_first_update_the_loss_is_zero_and_its_gradient_is_not():
    signal = advantages.standardized([1.0, 1.0, 0.0, 0.0])
    loss = grpo.grpo_loss(OLD, OLD, OLD, signal, ALL_ONES)
    assert loss.item() == pytest.approx(0.0, abs=1e-16)
    gradient = gradient_of(grpo.grpo_loss, OLD, OLD, OLD, signal, ALL_ONES)
    close(gradient, (-signal / 12)[:, None].expand(4, 3))


def test_the_loss_may_be_negative():
    assert grpo.grpo_loss([[-1.0]], [[-1.2]], [[-1.0]], [2.0], [[1]]).item() < -2.0


def expected_gradient(loss, logits: Tensor, ref: Tensor, rewards: Tensor, advantage_fn, size: int, **options) -> Tensor:
    """Gradient on the logits, averaged exactly over all groups of `size` one-token completions of the policy itself."""
    total = torch.zeros_like(logits)
    p, mask = logits.softmax(-1), torch.ones(size, 1)
    for group in itertools.product(range(len(logits)), repeat=size):
        actions = list(group)
        leaf = logits.clone().requires_grad_()
        logp = leaf.log_softmax(-1)[actions, None]
        signal = advantage_fn(rewards[actions])
        value = loss(logp, logp.detach(), ref.log()[actions, None], signal, mask, **options)
        total += p[actions].prod() * torch.autograd.grad(value, leaf)[0]
    return total


def test_the_expected_on_policy_gradient_is_that_of_reward_less_the_forward_kl():
    p, ref, rewards = f64([0.2, 0.3, 0.5]), f64([0.5, 0.3, 0.2]), f64([-1.0, 0.2, 2.0])
    ascent = f64([-0.372, -0.198, 0.570])
    for name in LOSSES:
        options = {"max_length": 1} if name == "dr_grpo" else {}
        plain = expected_gradient(LOSSES[name], p.log(), ref, rewards, advantages.leave_one_out, 3, beta=0.0, **options)
        close(plain, -ascent)
        centered = expected_gradient(LOSSES[name], p.log(), ref, rewards, advantages.centered, 3, beta=0.0, **options)
        close(centered, -ascent * 2 / 3)
        # k3 on samples of the policy has the gradient p − ref; times the ratio, that of the reverse KL.
        penalized = expected_gradient(
            LOSSES[name], p.log(), ref, rewards, advantages.leave_one_out, 2, beta=0.5, **options
        )
        close(penalized, -ascent + 0.5 * (p - ref))
        log_ratio = (p / ref).log()
        weighted = expected_gradient(
            LOSSES[name],
            p.log(),
            ref,
            rewards,
            advantages.leave_one_out,
            2,
            beta=0.5,
            kl_ratio_weighted=True,
            **options,
        )
        close(weighted, -ascent + 0.5 * p * (log_ratio - p @ log_ratio))


def test_off_policy_the_weighted_penalty_is_the_kl_and_the_plain_one_is_not():
    # Four actions, each sampled once: the exact mean over a uniform old policy. No advantage, so only β·KL is left.
    logits, ref = f64([0.1, 0.4, 0.9, -0.5]), f64([0.4, 0.3, 0.2, 0.1])
    old, signal, mask = f64([[0.25]] * 4).log(), torch.zeros(4), torch.ones(4, 1)
    p = logits.softmax(-1)
    log_ratio = (p / ref).log()
    for name in ("grpo", "bnpo", "dapo", "cispo", "sapo", "vespo", "gspo", "luspo"):

        def loss(z: Tensor, weighted: bool, name=name) -> Tensor:
            logp = z.log_softmax(-1)[:, None]
            return LOSSES[name](logp, old, ref.log()[:, None], signal, mask, beta=0.5, kl_ratio_weighted=weighted)

        close(loss(logits, True), 0.5 * p @ log_ratio)
        gradient = assert_gradient(lambda z, loss=loss: loss(z, True), logits)
        close(gradient, 0.5 * p * (log_ratio - p @ log_ratio))
        assert (loss(logits, False) - 0.5 * p @ log_ratio).abs() > 0.01


# ---------------------------------------------------------------- limits and relatives


def test_a_group_of_equal_rewards_moves_the_policy_only_through_the_penalty():
    signal = advantages.standardized([0.7, 0.7, 0.7, 0.7])
    assert not gradient_of(grpo.grpo_loss, NEW, OLD, NEW, signal, ALL_ONES).any()
    assert not gradient_of(grpo.grpo_loss, NEW, OLD, REF, signal, ALL_ONES, beta=0.0).any()
    moved = gradient_of(grpo.grpo_loss, NEW, OLD, REF, signal, ALL_ONES, beta=0.04)
    close(moved, (0.04 * (1 - (REF - NEW).exp()) / 12))


def test_a_group_without_signal_still_sits_in_the_denominator_of_the_token_mean():
    # Rows 0 and 1 are live, rows 2 and 3 a group of equal rewards: half of the twelve tokens.
    signal = f64([1.0, -1.0, 0.0, 0.0])
    kept = gradient_of(grpo.bnpo_loss, NEW, OLD, None, signal, ALL_ONES, beta=0.0)
    dropped = gradient_of(grpo.bnpo_loss, NEW[:2], OLD[:2], None, signal[:2], ALL_ONES[:2], beta=0.0)
    assert not kept[2:].any()
    close(kept[:2], dropped / 2)


def test_a_reference_reset_at_every_step_makes_the_penalty_inert():
    for weighted in (False, True):
        with_penalty = gradient_of(
            grpo.grpo_loss, NEW, OLD, NEW, SIGNAL, ALL_ONES, beta=10.0, kl_ratio_weighted=weighted
        )
        without = gradient_of(grpo.grpo_loss, NEW, OLD, None, SIGNAL, ALL_ONES, beta=0.0)
        close(with_penalty, without)


def test_without_beta_the_reference_is_not_even_looked_at():
    for name, loss in LOSSES.items():
        values = [
            loss(LOGP, TWO_OLD, ref, TWO_SIGNAL, TWO_MASK, beta=0.0) for ref in (None, TWO_REF, "rubbish", math.nan)
        ]
        assert all(torch.equal(value, values[0]) for value in values), name


def test_at_equal_lengths_the_token_losses_are_one_up_to_a_known_factor():
    batch = NEW, OLD, REF, SIGNAL, ALL_ONES
    plain = grpo.grpo_loss(*batch)
    close(grpo.bnpo_loss(*batch), plain)
    close(grpo.dapo_loss(*batch, clip_high=0.2, beta=0.04), plain)
    close(grpo.dr_grpo_loss(*batch, beta=0.04, max_length=12), plain * 3 / 12)
    close(grpo.luspo_loss(*batch, beta=0.04), 3 * grpo.gspo_loss(*batch, beta=0.04))


def test_with_one_token_a_sequence_the_levels_agree():
    batch = NEW[:, :1], OLD[:, :1], REF[:, :1], SIGNAL, ALL_ONES[:, :1]
    for weighted in (False, True):
        options = {"beta": 0.04, "clip_low": 0.2, "clip_high": 0.2, "kl_ratio_weighted": weighted}
        plain = grpo.grpo_loss(*batch, **options)
        close(grpo.gspo_loss(*batch, **options), plain)
        close(grpo.luspo_loss(*batch, **options), plain)


def test_the_levels_differ_where_tokens_of_one_sequence_disagree():
    # Ratios 2 and 0.5: the token level clips the first, the geometric mean is 1.
    batch = [[-1.0, -1.0]], np.array([[-1.0, -1.0]]) - np.log([[2.0, 0.5]]), None, [1.0], [[1, 1]]
    close(grpo.grpo_loss(*batch, beta=0.0), -(1.2 + 0.5) / 2)
    close(grpo.gspo_loss(*batch), -1.0)
    close(grpo.luspo_loss(*batch), -2.0)


@pytest.mark.parametrize("name", LOSSES)
def test_advantages_of_a_sequence_may_be_given_by_token(name):
    for signal in (TWO_SIGNAL[:, None].expand(2, 2), f64([[1.0, 1.0], [-2.0, math.nan]])):
        batch = LOGP, TWO_OLD, TWO_REF
        given_by_token = LOSSES[name](*batch, signal, TWO_MASK, beta=0.1)
        assert torch.equal(given_by_token, LOSSES[name](*batch, TWO_SIGNAL, TWO_MASK, beta=0.1))


def test_advantages_by_token_are_used_by_token():
    signal = [[1.0, -1.0], [-2.0, 0.0]]
    close(grpo.bnpo_loss(LOGP, TWO_OLD, None, signal, TWO_MASK, beta=0.0), -(1.2 - 0.8 - 2.2) / 3)


def test_as_many_sequences_as_tokens_do_not_confuse_the_axes():
    # (B,) is one a completion even when B = T, where broadcasting would read it as one a position.
    ratios = f64([[1.1, 1.2], [0.9, 1.0]])
    loss = grpo.grpo_loss(ratios.log(), torch.zeros(2, 2), None, [1.0, 10.0], torch.ones(2, 2), beta=0.0)
    close(loss, -((1.1 + 1.2) / 2 + 10 * (0.9 + 1.0) / 2) / 2)


# ---------------------------------------------------------------- invariances


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("poison", POISON)
def test_padding_changes_neither_value_nor_gradient_by_a_single_bit(name, poison):
    def poisoned(values: Tensor) -> Tensor:
        return torch.where(TWO_MASK, values, poison)

    signal = TWO_SIGNAL[:, None].expand(2, 2)
    for weighted in (False, True):
        options = {"beta": 0.1, "kl_ratio_weighted": weighted}
        clean = LOGP, TWO_OLD, TWO_REF, signal
        dirty = [poisoned(values) for values in clean]
        assert torch.equal(LOSSES[name](*clean, TWO_MASK, **options), LOSSES[name](*dirty, TWO_MASK, **options))
        gradients = [gradient_of(LOSSES[name], *batch, TWO_MASK, **options) for batch in (clean, dirty)]
        assert torch.equal(*gradients)
        assert gradients[1][1, 1] == 0.0


def random_batch(seed: int, rows: int = 6, tokens: int = 5, dtype: torch.dtype = torch.float64):
    """Ragged log-probabilities of three close policies, advantages and a mask."""
    generator = torch.Generator().manual_seed(seed)
    logp = -3 * torch.rand(rows, tokens, dtype=torch.float64, generator=generator)
    old = logp + 0.3 * torch.randn(rows, tokens, dtype=torch.float64, generator=generator)
    ref = logp + 0.3 * torch.randn(rows, tokens, dtype=torch.float64, generator=generator)
    signal = torch.randn(rows, dtype=torch.float64, generator=generator)
    mask = torch.arange(tokens) < torch.randint(1, tokens + 1, (rows, 1), generator=generator)
    return logp.to(dtype), old.to(dtype), ref.to(dtype), signal.to(dtype), mask


@pytest.mark.parametrize("name", LOSSES)
@given(st.integers(0, 1000), st.permutations(range(6)), st.floats(0.1, 10))
def test_order_does_not_matter_and_a_scale_of_all_rewards_scales_the_loss(name, seed, order, scale):
    logp, old, ref, signal, mask = random_batch(seed)
    loss = LOSSES[name](logp, old, ref, signal, mask, beta=0.1)
    permuted = LOSSES[name](logp[order], old[order], ref[order], signal[order], mask[order], beta=0.1)
    close(permuted, loss, rtol=1e-9, atol=1e-12)
    backwards = [values.flip(-1) for values in (logp, old, ref)]
    close(LOSSES[name](*backwards, signal, mask.flip(-1), beta=0.1), loss, rtol=1e-9, atol=1e-12)
    scaled = LOSSES[name](logp, old, ref, scale * signal, mask, beta=scale * 0.1)
    close(scaled, scale * loss, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@given(st.integers(0, 1000), st.integers(1, 3))
def test_more_padding_is_the_same_batch(name, seed, extra):
    logp, old, ref, signal, mask = random_batch(seed)
    longer = [torch.nn.functional.pad(values, (0, extra), value=math.nan) for values in (logp, old, ref)]
    options = {"beta": 0.1} | ({"max_length": 8} if name == "dr_grpo" else {})
    loss = LOSSES[name](*longer, signal, torch.nn.functional.pad(mask, (0, extra)), **options)
    close(loss, LOSSES[name](logp, old, ref, signal, mask, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SLICED)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_slices_of_a_generation_batch_add_up_in_value_and_gradient(name, seed, cut):
    batch = random_batch(seed)
    count = int(batch[-1].sum())
    slices = [tuple(values[part] for values in batch) for part in (slice(0, cut), slice(cut, 6))]
    options = {"beta": 0.1, "token_count": count}
    close(sum(LOSSES[name](*s, **options) for s in slices), LOSSES[name](*batch, beta=0.1), rtol=1e-9, atol=1e-12)
    gradient = torch.cat([gradient_of(LOSSES[name], *s, **options) for s in slices])
    close(gradient, gradient_of(LOSSES[name], *batch, beta=0.1), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- dtype, input forms


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, RTOL), (torch.float32, 1e-5)])
def test_the_dtype_is_kept(name, dtype, tolerance):
    batch = random_batch(3, dtype=dtype)
    for weighted in (False, True):
        options = {"beta": 0.1, "kl_ratio_weighted": weighted}
        loss = LOSSES[name](*batch, **options)
        assert loss.dtype == dtype
        exact = LOSSES[name](*random_batch(3), **options)
        assert loss.item() == pytest.approx(exact.item(), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_bfloat16_is_kept_too(name):
    assert LOSSES[name](*random_batch(3, dtype=torch.bfloat16), beta=0.1).dtype == torch.bfloat16


@pytest.mark.parametrize("name", LOSSES)
def test_lists_and_numpy_arrays_become_float64_and_give_the_same_number(name):
    batch = random_batch(4)
    expected = LOSSES[name](*batch, beta=0.1)
    for convert in (Tensor.tolist, Tensor.numpy):
        loss = LOSSES[name](*map(convert, batch), beta=0.1)
        assert loss.dtype == torch.float64
        assert torch.equal(loss, expected)
    rounded = LOSSES[name](*(values.numpy().astype(np.float32) for values in batch), beta=0.1)
    assert rounded.dtype == torch.float64


def test_gradients_flow_through_lists_of_tensors():
    token = tensor(-1.0, dtype=torch.float64, requires_grad=True)
    row = tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    loss = grpo.grpo_loss([[token, -2.0]], [[-1.0, -2.0]], None, [2.0], [[1, 1]], beta=0.0)
    assert torch.autograd.grad(loss, token)[0].item() == -1.0
    loss = grpo.grpo_loss([row], [[-1.0, -2.0]], None, [2.0], [[1, 1]], beta=0.0)
    assert torch.autograd.grad(loss, row)[0].tolist() == [-1.0, -1.0]


# ---------------------------------------------------------------- refusals

GOOD = {"logp": LOGP, "logp_old": TWO_OLD, "logp_ref": TWO_REF, "advantages": TWO_SIGNAL, "mask": TWO_MASK, "beta": 0.1}
BAD = [
    ({"beta": -0.1}, r"beta must be at least 0; got -0.1"),
    ({"beta": None}, r"beta must be a finite number; got None"),
    ({"logp": LOGP[0]}, r"logp must be \(B, T\), one number per token; got shape \(2,\)"),
    ({"logp": LOGP.flatten().tolist()}, r"logp must be \(B, T\)"),
    ({"logp": "text"}, r"logp must be real numbers"),
    ({"logp_old": None}, r"logp_old must be the \(B, T\) log-probabilities of that policy; got None"),
    ({"logp_ref": None}, r"logp_ref must be the \(B, T\) log-probabilities of that policy; got None"),
    ({"logp_old": TWO_OLD[:1]}, r"logp and logp_old must have the same shape; got logp \(2, 2\), logp_old \(1, 2\)"),
    ({"logp_ref": TWO_REF[:, :1]}, r"logp and logp_ref must have the same shape; got logp \(2, 2\), logp_ref \(2, 1\)"),
    ({"logp": LOGP.clone().fill_(math.nan)}, r"logp must be finite; got nan at index \(0, 0\)"),
    ({"logp_old": TWO_OLD * math.inf}, r"logp_old must be finite; got -inf at index \(0, 0\)"),
    ({"logp_ref": TWO_REF * math.nan}, r"logp_ref must be finite; got nan at index \(0, 0\)"),
    ({"logp_old": TWO_OLD - 800}, r"exp\(logp - logp_old\) must fit torch.float64; got .* = 800.405 at index \(0, 0\)"),
    ({"logp_ref": TWO_REF + 800}, r"exp\(logp_ref - logp\) must fit torch.float64; got .* = 800.2 at index \(0, 0\)"),
    ({"logp_old": TWO_OLD.clone().requires_grad_()}, r"logp_old must carry no gradient; got a tensor that does"),
    ({"logp_ref": TWO_REF.clone().requires_grad_()}, r"logp_ref must carry no gradient; got a tensor that does"),
    ({"advantages": TWO_SIGNAL.clone().requires_grad_()}, r"advantages must carry no gradient; got a tensor that does"),
    ({"advantages": f64([1.0])}, r"advantages must be \(B,\) = \(2,\) or \(B, T\) = \(2, 2\); got shape \(1,\)"),
    ({"advantages": f64([[1.0], [2.0]])}, r"advantages must be \(B,\) = \(2,\) .* got shape \(2, 1\)"),
    ({"advantages": 1.0}, r"advantages must be \(B,\) = \(2,\) .* got shape \(\)"),
    ({"advantages": f64([1.0, math.nan])}, r"advantages must be finite; got nan at index \(1, 0\)"),
    ({"mask": [[1, 1], [0, 0]]}, r"mask must keep at least one token in every sequence; sequence \(1,\) has none"),
    ({"mask": [[1, 1]]}, r"mask must have the shape \(2, 2\) of the values; got \(1, 2\)"),
    ({"mask": [[1, 1], [1, 0.5]]}, r"mask must hold only True/False or 1/0"),
]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("changed, message", BAD, ids=[message[:40] for _, message in BAD])
def test_what_does_not_fit_is_refused(name, changed, message):
    LOSSES[name](**GOOD) if name != "dr_grpo" else grpo.dr_grpo_loss(**GOOD, max_length=2)
    arguments = GOOD | changed
    with pytest.raises(ValueError, match=message):
        grpo.dr_grpo_loss(**arguments, max_length=2) if name == "dr_grpo" else LOSSES[name](**arguments)


@pytest.mark.parametrize("name", [*TOKEN_CLIP, *SEQUENCE_CLIP])
@pytest.mark.parametrize("edge", ["clip_low", "clip_high"])
def test_a_radius_outside_zero_and_one_is_refused(name, edge):
    for bad in (0.0, 1.0, 1.2, -0.2):
        with pytest.raises(ValueError, match=f"{edge} must lie strictly between 0 and 1; got {bad}"):
            LOSSES[name](LOGP, TWO_OLD, None, TWO_SIGNAL, TWO_MASK, beta=0.0, **{edge: bad})


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("cispo", {"clip_high": 0.0}, "clip_high must be greater than 0; got 0.0"),
        ("sapo", {"temperature_positive": 0}, "temperature_positive must be greater than 0; got 0"),
        ("sapo", {"temperature_negative": -1}, "temperature_negative must be greater than 0; got -1"),
        ("vespo", {"shape_negative": 0}, "shape_negative must be greater than 0; got 0"),
        ("dr_grpo", {"max_length": 1}, "max_length must be a whole number of at least 2; got 1"),
        ("dapo", {"token_count": 2}, "token_count must be a whole number of at least 3; got 2"),
        ("cispo", {"token_count": 2}, "token_count must be a whole number of at least 3; got 2"),
        ("vespo", {"token_count": 2}, "token_count must be a whole number of at least 3; got 2"),
    ],
)
def test_options_out_of_range_are_refused_by_name(name, options, message):
    with pytest.raises(ValueError, match=message):
        LOSSES[name](LOGP, TWO_OLD, None, TWO_SIGNAL, TWO_MASK, **({"beta": 0.0} | options))


def test_an_overflow_of_a_whole_sequence_is_refused_though_its_tokens_fit():
    old = f64([[-400.0, -400.0], [-3.0, -3.0]])
    logp = f64([[-1.0, -1.0], [-3.0, -3.0]])
    with pytest.raises(
        ValueError, match=r"exp\(log_ratio summed over a sequence\) must fit torch.float64; got .* = 798"
    ):
        grpo.vespo_loss(logp, old, None, TWO_SIGNAL, TWO_MASK)
    assert grpo.gspo_loss(logp, old, None, TWO_SIGNAL, TWO_MASK).isfinite()


def test_hyper_parameters_are_given_by_name():
    for name in LOSSES:
        parameters = inspect.signature(getattr(grpo, f"{name}_loss")).parameters.values()
        positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        assert positional == ["logp", "logp_old", "logp_ref", "advantages", "mask"]
