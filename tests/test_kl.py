"""The KL divergence and its three estimators: values and gradients, both by full enumeration."""

import math

import numpy as np
import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor
from torch.distributions import Categorical
from torch.distributions import kl_divergence as library_kl

from labsrc import kl

ESTIMATORS = (kl.kl_k1, kl.kl_k2, kl.kl_k3)
LN2 = math.log(2)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(*values: float) -> Tensor:
    return tensor(values, dtype=torch.float64)


P, Q, OLD = f64(0.7, 0.2, 0.1), f64(0.2, 0.3, 0.5), f64(0.3, 0.3, 0.4)


def distributions(size: int = 4):
    weights = st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size)
    return weights.map(lambda w: f64(*w) / sum(w))


# ---------------------------------------------------------------- the exact divergence


def test_the_divergence_of_the_worked_policies():
    by_hand = 0.7 * math.log(0.7 / 0.2) + 0.2 * math.log(0.2 / 0.3) + 0.1 * math.log(0.1 / 0.5)
    close(kl.kl_divergence(P, Q), by_hand)
    assert kl.kl_divergence(P, Q).item() == pytest.approx(0.634897, abs=5e-7)
    # One way is not the other.
    close(kl.kl_divergence(Q, P), 0.2 * math.log(2 / 7) + 0.3 * math.log(1.5) + 0.5 * math.log(5))


def test_the_divergence_from_a_fair_coin_of_a_certain_one_is_log_two():
    assert kl.kl_divergence([1.0, 0.0], [0.5, 0.5]).item() == pytest.approx(LN2, rel=RTOL)
    assert kl.kl_divergence([1.0, 0.0], [1.0, 0.0]).item() == 0.0


def test_mass_that_the_reference_lacks_makes_it_infinite():
    assert kl.kl_divergence([0.5, 0.5], [1.0, 0.0]).item() == math.inf


@given(distributions(), distributions())
def test_it_agrees_with_two_other_libraries(p, q):
    close(kl.kl_divergence(p, q), library_kl(Categorical(probs=p), Categorical(probs=q)), rtol=1e-9)
    close(kl.kl_divergence(p, q), torch.nn.functional.kl_div(q.log(), p, reduction="sum"), rtol=1e-9)


@given(distributions(), distributions(), st.permutations(range(4)))
def test_it_is_non_negative_and_blind_to_the_order_of_the_actions(p, q, order):
    value = kl.kl_divergence(p, q)
    assert value.item() >= -1e-15
    close(kl.kl_divergence(p[order], q[order]), value)
    assert kl.kl_divergence(p, p).item() == 0.0


def test_leading_axes_broadcast_and_give_one_number_a_row():
    rows = torch.stack([P, Q, OLD])
    close(kl.kl_divergence(rows, Q), [kl.kl_divergence(row, Q).item() for row in rows])
    assert kl.kl_divergence(rows[:, None], rows[None]).shape == (3, 3)


def test_the_gradient_reaches_both_distributions():
    p, q = P.clone().requires_grad_(), Q.clone().requires_grad_()
    grad_p, grad_q = torch.autograd.grad(kl.kl_divergence(p, q), (p, q))
    close(grad_p, [math.log(a / b) + 1 for a, b in zip(P.tolist(), Q.tolist(), strict=True)])
    close(grad_q, [-a / b for a, b in zip(P.tolist(), Q.tolist(), strict=True)])


def test_the_gradient_on_logits_is_p_times_the_log_ratio_less_the_divergence():
    gradient = assert_gradient(lambda z: kl.kl_divergence(z.softmax(-1), Q), P.log())
    divergence = 0.7 * math.log(3.5) + 0.2 * math.log(2 / 3) + 0.1 * math.log(0.2)
    by_hand = [
        0.7 * (math.log(3.5) - divergence),
        0.2 * (math.log(2 / 3) - divergence),
        0.1 * (math.log(0.2) - divergence),
    ]
    close(gradient, by_hand)


def test_an_action_outside_the_support_leaves_the_gradient_finite():
    p = f64(0.5, 0.5, 0.0).requires_grad_()
    for q in (f64(0.2, 0.3, 0.5), f64(0.5, 0.5, 0.0)):
        q.requires_grad_()
        gradients = torch.autograd.grad(kl.kl_divergence(p, q), (p, q))
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert gradients[0][2] == gradients[1][2] == 0.0


# ---------------------------------------------------------------- the estimators, by hand


def test_the_three_estimators_of_one_token_by_hand():
    half, quarter = [math.log(0.5)], [math.log(0.25)]
    close(kl.kl_k1(half, quarter), [LN2])
    close(kl.kl_k2(half, quarter), [LN2**2 / 2])
    close(kl.kl_k3(half, quarter), [0.5 + LN2 - 1])
    # The other way round: k1 changes sign, k2 does not, k3 is another number.
    close(kl.kl_k1(quarter, half), [-LN2])
    close(kl.kl_k2(quarter, half), [LN2**2 / 2])
    close(kl.kl_k3(quarter, half), [2 - LN2 - 1])


def test_the_mean_k3_of_a_reference_a_twentieth_of_a_nat_below():
    old = np.log([[0.30, 0.25, 0.20], [0.18, 0.22, 0.20], [0.12, 0.16, 0.20], [0.25, 0.20, 0.18]])
    new = old + np.array([[0.25], [0.10], [-0.25], [-0.10]])
    by_hand = sum(math.exp(d) - d - 1 for d in (-0.30, -0.15, 0.20, 0.05)) / 4
    close(kl.kl_k3(new, old - 0.05).mean(), by_hand)
    assert by_hand == pytest.approx(0.018550, abs=5e-7)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k1_may_be_negative_and_k2_and_k3_never_are(logp, logp_ref):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        pair = tensor([logp], dtype=dtype), tensor([logp_ref], dtype=dtype)
        assert kl.kl_k1(*pair).item() == -kl.kl_k1(*reversed(pair)).item()
        assert kl.kl_k2(*pair).item() >= 0
        assert kl.kl_k3(*pair).item() >= 0


def test_k3_keeps_its_digits_when_the_policies_are_close():
    # Taylor: e^Δ − Δ − 1 = Δ²/2 + Δ³/6 + …; computing e^Δ first would leave four digits of ten here.
    for delta in (1e-5, -1e-5):
        expected = delta**2 / 2 + delta**3 / 6 + delta**4 / 24
        assert kl.kl_k3(tensor(0.0, dtype=torch.float64), tensor(delta, dtype=torch.float64)).item() == pytest.approx(
            expected, rel=1e-9
        )


# ---------------------------------------------------------------- values: expectation by enumeration


@given(distributions(), distributions())
def test_the_expectations_of_k1_and_k3_under_the_policy_are_the_kl(p, q):
    exact = library_kl(Categorical(probs=p), Categorical(probs=q))
    for estimator in (kl.kl_k1, kl.kl_k3):
        close((p * estimator(p.log(), q.log())).sum(), exact, rtol=1e-9)


def test_the_expectation_of_k2_under_the_policy_is_another_number():
    expected = sum(p * math.log(p / q) ** 2 / 2 for p, q in ((0.7, 0.2), (0.2, 0.3), (0.1, 0.5)))
    mean = (P * kl.kl_k2(P.log(), Q.log())).sum()
    close(mean, expected)
    assert abs(mean.item() - 0.634897) > 0.05


def test_the_plain_mean_of_k3_on_samples_of_another_policy_is_another_number():
    expected = sum(
        old * (q / p - math.log(q / p) - 1) for old, p, q in ((0.3, 0.7, 0.2), (0.3, 0.2, 0.3), (0.4, 0.1, 0.5))
    )
    mean = (OLD * kl.kl_k3(P.log(), Q.log())).sum()
    close(mean, expected)
    assert abs(mean.item() - 0.634897) > 0.1


@given(distributions(), distributions(), distributions())
def test_weighted_by_the_ratio_k1_and_k3_have_the_right_value_on_samples_of_any_policy(p, q, old):
    exact = library_kl(Categorical(probs=p), Categorical(probs=q))
    for estimator in (kl.kl_k1, kl.kl_k3):
        weighted = kl.ratio_weighted(estimator(p.log(), q.log()), p.log() - old.log())
        close((old * weighted).sum(), exact, rtol=1e-9)


# ---------------------------------------------------------------- gradients: the table of chapter 4


def true_gradient(logits: Tensor, reference: Tensor) -> Tensor:
    """∇KL on the logits, worked on paper: p·(log p/q − KL)."""
    p = logits.softmax(-1)
    log_ratio = p.log() - reference.log()
    return p * (log_ratio - (p * log_ratio).sum())


def forward_gradient(logits: Tensor, reference: Tensor) -> Tensor:
    """∇KL(reference‖policy) on the logits, worked on paper: p − q."""
    return logits.softmax(-1) - reference


def as_loss(estimator, logits: Tensor, reference: Tensor, sampler: Tensor, *, ratio: str = "none") -> Tensor:
    """Gradient of the estimator as a loss on fixed samples, averaged over the samples of `sampler` exactly."""
    logits = logits.detach().clone().requires_grad_()
    logp = logits.log_softmax(-1)
    per_sample = estimator(logp, reference.log())
    if ratio != "none":
        log_ratio = logp - sampler.log()
        per_sample = kl.ratio_weighted(per_sample, log_ratio.detach() if ratio == "detached" else log_ratio)
    (gradient,) = torch.autograd.grad((sampler * per_sample).sum(), logits)
    return gradient


def in_reward(estimator, logits: Tensor, reference: Tensor) -> Tensor:
    """Gradient of the score-function estimator with the estimate as a constant cost, averaged exactly."""
    logits = logits.detach().clone().requires_grad_()
    logp = logits.log_softmax(-1)
    cost = estimator(logp, reference.log()).detach()
    (gradient,) = torch.autograd.grad((logp.detach().exp() * cost * logp).sum(), logits)
    return gradient


LOGITS, REFERENCE = f64(0.1, 0.4, 0.9), f64(0.5, 0.3, 0.2)


def test_the_worked_gradients_of_three_actions():
    policy = LOGITS.softmax(-1)
    assert kl.kl_divergence(policy, REFERENCE).item() == pytest.approx(0.246496, abs=5e-7)
    assert kl.kl_divergence(REFERENCE, policy).item() == pytest.approx(0.241041, abs=5e-7)
    close(as_loss(kl.kl_k1, LOGITS, REFERENCE, policy), [0.0, 0.0, 0.0])
    close(as_loss(kl.kl_k2, LOGITS, REFERENCE, policy), [-0.23474, -0.07766, 0.31240], rtol=0, atol=5e-6)
    close(as_loss(kl.kl_k3, LOGITS, REFERENCE, policy), [-0.28144, -0.00498, 0.28641], rtol=0, atol=6e-6)


def test_k3_on_fixed_samples_has_the_gradient_p_minus_q():
    close(as_loss(kl.kl_k3, P.log(), Q, P), [0.5, -0.1, -0.4])
    assert (true_gradient(P.log(), Q) - f64(0.5, -0.1, -0.4)).abs().max() > 0.05


@given(distributions(), distributions())
def test_as_a_loss_on_policy_k1_is_nothing_k2_the_true_gradient_k3_the_forward_one(p, q):
    close(as_loss(kl.kl_k1, p.log(), q, p), torch.zeros(4), atol=1e-12)
    close(as_loss(kl.kl_k2, p.log(), q, p), true_gradient(p.log(), q), rtol=1e-9, atol=1e-12)
    close(as_loss(kl.kl_k3, p.log(), q, p), forward_gradient(p.log(), q), rtol=1e-9, atol=1e-12)


def test_in_the_reward_only_k1_is_right():
    truth = true_gradient(LOGITS, REFERENCE)
    close(in_reward(kl.kl_k1, LOGITS, REFERENCE), truth)
    for estimator in (kl.kl_k2, kl.kl_k3):
        assert (in_reward(estimator, LOGITS, REFERENCE) - truth).abs().max() > 0.01


@given(distributions(), distributions(), distributions())
def test_with_the_ratio_in_the_graph_k1_and_k3_are_right_on_samples_of_any_policy(p, q, old):
    for sampler in (p, old):
        for estimator in (kl.kl_k1, kl.kl_k3):
            gradient = as_loss(estimator, p.log(), q, sampler, ratio="in graph")
            close(gradient, true_gradient(p.log(), q), rtol=1e-9, atol=1e-12)


def test_with_the_ratio_in_the_graph_k2_is_not_right():
    gradient = as_loss(kl.kl_k2, P.log(), Q, OLD, ratio="in graph")
    assert (gradient - true_gradient(P.log(), Q)).abs().max() > 0.01


def test_a_detached_ratio_loses_a_term_of_the_gradient():
    # The samples of OLD become samples of P in the mean, so what is left is the on-policy result.
    close(as_loss(kl.kl_k3, P.log(), Q, OLD, ratio="detached"), [0.5, -0.1, -0.4])
    close(as_loss(kl.kl_k1, P.log(), Q, OLD, ratio="detached"), [0.0, 0.0, 0.0])


def test_off_policy_k1_without_the_ratio_can_point_the_wrong_way():
    gradient = as_loss(kl.kl_k1, P.log(), Q, OLD)
    close(gradient, OLD - P)
    assert gradient @ true_gradient(P.log(), Q) < 0


def test_trained_on_alone_from_the_reference_k2_and_k3_stay_and_k1_drifts_away():
    moved = {}
    for estimator in ESTIMATORS:
        logits = Q.log().requires_grad_()
        optimizer, generator = torch.optim.Adam([logits], lr=0.1), torch.Generator().manual_seed(0)
        for _ in range(300):
            actions = torch.multinomial(logits.detach().softmax(-1), 8, replacement=True, generator=generator)
            optimizer.zero_grad()
            estimator(logits.log_softmax(-1)[actions], Q.log()[actions]).mean().backward()
            optimizer.step()
        moved[estimator] = kl.kl_divergence(logits.detach().softmax(-1), Q).item()
    # Rounding is all the gradient that k2 and k3 have at the reference; k1 has noise of mean zero, and no way back.
    assert moved[kl.kl_k1] > 0.1
    assert max(moved[kl.kl_k2], moved[kl.kl_k3]) < 1e-9


# ---------------------------------------------------------------- sequences: two tokens, three symbols


def sequence_terms(theta: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """log π and log π_ref of both tokens of all nine sequences, (9, 2); theta and reference are (4, 3) logits."""
    first, second = torch.arange(3).repeat_interleave(3), torch.arange(3).repeat(3)

    def both(logits: Tensor) -> Tensor:
        logp = logits.log_softmax(-1)
        return torch.stack([logp[0, first], logp[1 + first, second]], -1)

    return both(theta), both(reference)


def sequence_gradients(theta: Tensor, reference: Tensor, sampler: Tensor) -> dict[str, Tensor]:
    """Gradients on theta of seven ways to penalise, each averaged over all nine sequences exactly."""
    theta = theta.clone().requires_grad_()
    logp, logp_ref = sequence_terms(theta, reference)
    logp_old, _ = sequence_terms(sampler, reference)
    probability, old = logp.detach().sum(-1).exp(), logp_old.sum(-1).exp()
    k1, k3 = kl.kl_k1(logp, logp_ref), kl.kl_k3(logp, logp_ref)
    to_go = k1.detach().flip(-1).cumsum(-1).flip(-1)
    means = {
        "truth": (logp.sum(-1).exp() * k1.sum(-1)).sum(),
        "token k2": (probability * kl.kl_k2(logp, logp_ref).sum(-1)).sum(),
        "own k1 in the reward": (probability * (k1.detach() * logp).sum(-1)).sum(),
        "token ratio k3": (probability * kl.ratio_weighted(k3, logp - logp.detach()).sum(-1)).sum(),
        "sequence k2": (probability * kl.kl_k2(logp.sum(-1), logp_ref.sum(-1))).sum(),
        "k1 to go in the reward": (probability * (to_go * logp).sum(-1)).sum(),
        "prefix ratio k3": (old * kl.ratio_weighted(k3, (logp - logp_old).cumsum(-1)).sum(-1)).sum(),
    }
    return {name: torch.autograd.grad(mean, theta, retain_graph=True)[0] for name, mean in means.items()}


def test_token_penalties_miss_what_a_token_does_to_the_kl_that_follows():
    generator = torch.Generator().manual_seed(5)
    theta, reference, sampler = torch.randn(3, 4, 3, dtype=torch.float64, generator=generator)
    gradients = sequence_gradients(theta, reference, sampler)
    truth = gradients.pop("truth")
    for name in ("sequence k2", "k1 to go in the reward", "prefix ratio k3"):
        close(gradients[name], truth, atol=1e-12)
    missed = truth - gradients["token k2"]
    assert missed[0].abs().max() > 0.01
    close(missed[1:], torch.zeros(3, 3), atol=1e-12)
    for name in ("own k1 in the reward", "token ratio k3"):
        close(truth - gradients[name], missed, atol=1e-12)


# ---------------------------------------------------------------- graph, dtype, refusals


def test_autograd_of_the_estimators_is_the_derivative():
    logp, logp_ref = (torch.randn(2, 3, dtype=torch.float64, generator=torch.manual_seed(0)) for _ in range(2))
    for estimator in ESTIMATORS:
        assert torch.autograd.gradcheck(estimator, (logp.requires_grad_(), logp_ref.requires_grad_()))
    assert torch.autograd.gradcheck(kl.ratio_weighted, (logp, logp_ref))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    p, q = P.to(dtype), Q.to(dtype)
    p, q = p / p.sum(), q / q.sum()
    assert kl.kl_divergence(p, q).dtype == dtype
    for estimator in (*ESTIMATORS, kl.ratio_weighted):
        assert estimator(p.log(), q.log()).dtype == dtype


def test_lists_and_numpy_arrays_become_float64():
    half = np.array([-0.5], dtype=np.float32)
    for estimator in (*ESTIMATORS, kl.ratio_weighted):
        assert estimator([-1.0], half).dtype == torch.float64
    assert kl.kl_divergence([1, 0], np.array([0.5, 0.5], dtype=np.float32)).dtype == torch.float64


def test_distributions_that_are_none_are_refused():
    with pytest.raises(ValueError, match="p must sum to 1"):
        kl.kl_divergence([0.5, 0.4], [0.5, 0.5])
    with pytest.raises(ValueError, match="q must be non-negative"):
        kl.kl_divergence([0.5, 0.5], [1.5, -0.5])
    with pytest.raises(ValueError, match="p and q must have shapes that broadcast"):
        kl.kl_divergence([0.5, 0.5], [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="p and q must list the same actions; got 2 and 1"):
        kl.kl_divergence([0.5, 0.5], [1.0])


def test_log_probabilities_that_do_not_fit_are_refused():
    for estimator in ESTIMATORS:
        with pytest.raises(
            ValueError, match=r"logp and logp_ref must have the same shape; got logp \(1,\), logp_ref \(2,"
        ):
            estimator([-1.0], [-1.0, -2.0])
        with pytest.raises(ValueError, match="logp must be finite; got nan"):
            estimator([math.nan], [-1.0])
        with pytest.raises(ValueError, match="logp_ref must be finite; got -inf"):
            estimator([-1.0], [-math.inf])


def test_an_overflow_is_refused_and_never_clamped():
    with pytest.raises(
        ValueError, match=r"exp\(logp_ref - logp\) must fit torch.float64; got .* = 800 at index \(0,\)"
    ):
        kl.kl_k3([-801.0], [-1.0])
    assert kl.kl_k3([-1.0], [-801.0]).item() == pytest.approx(799.0, rel=RTOL)
    with pytest.raises(ValueError, match=r"exp\(log_ratio\) must fit"):
        kl.ratio_weighted([1.0], [800.0])


def test_a_ratio_that_does_not_fit_the_estimate_is_refused():
    with pytest.raises(ValueError, match="kl_per_token and log_ratio must have shapes that broadcast"):
        kl.ratio_weighted([1.0, 2.0], [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="kl_per_token must be finite"):
        kl.ratio_weighted([math.inf], [0.0])
    # One ratio for a whole sequence fits all its tokens.
    close(kl.ratio_weighted([[1.0, 2.0], [3.0, 4.0]], [[LN2], [0.0]]), [[2.0, 4.0], [3.0, 4.0]])
