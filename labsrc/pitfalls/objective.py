"""Terms of the loss that have the right value, or nearly, and the wrong gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from labsrc import aggregation, closed_form, exact, kl, kl_estimators, policy_gradient, toylm
from labsrc.pitfalls.record import Effect, Pitfall

RADII = {"clip_low": 0.2, "clip_high": 0.2}


def penalty_k2(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """A KL term per sample of the current policy whose gradient is that of the KL."""
    return kl.kl_k2(logp, logp_ref)


def penalty_k1(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Faulty as a loss: its mean is the KL, and its gradient is noise around 0."""
    return kl.kl_k1(logp, logp_ref)


def assert_gradient_is_that_of_the_kl(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Averaged over all actions, the gradient is ∇KL."""
    logits, logits_ref = torch.tensor([0.1, 0.4, 0.9]), torch.tensor([0.5, 0.3, 0.2]).log()
    found = kl_estimators.gradient_moments(kl_estimators.as_loss, function, logits, logits_ref).mean
    wanted = exact.kl_gradient(logits, logits_ref)
    assert (found - wanted).abs().max() < 1e-5, f"the gradient has length {found.norm():.4f}, not {wanted.norm():.4f}"


def kept_when_wrong(log_ratio: Tensor, advantages: Tensor) -> Tensor:
    """The clipped surrogate: the smaller product, whatever the sign of A."""
    return policy_gradient.clipped_surrogate(log_ratio, advantages, **RADII)


def dropped_when_wrong(log_ratio: Tensor, advantages: Tensor) -> Tensor:
    """Faulty: the larger product for A < 0, which is −min of the products with −A."""
    sign = torch.where(advantages < 0, -1.0, 1.0)
    return sign * policy_gradient.clipped_surrogate(log_ratio, sign * advantages, **RADII)


def assert_clip_ends_only_past_the_goal(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A bad token keeps its gradient at ratio 1.5 and has lost it at 0.5."""
    log_ratio = torch.tensor([1.5, 0.5]).log().requires_grad_()
    (slope,) = torch.autograd.grad(function(log_ratio, torch.tensor([-1.0, -1.0])).sum(), log_ratio)
    assert slope[0] != 0 and slope[1] == 0, f"slopes at ratios 1.5 and 0.5 are {slope[0]:.2f} and {slope[1]:.2f}"


def kl_to_reference(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """KL(π‖π_ref) from log-probabilities (…, K); `kl_div` wants the second distribution first."""
    return functional.kl_div(logp_ref, logp, reduction="none", log_target=True).sum(-1)


def kl_from_reference(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Faulty: arguments in the order one speaks, and a target turned into probabilities: KL(π_ref‖π)."""
    return functional.kl_div(logp, logp_ref.exp(), reduction="none").sum(-1)


def assert_direction_of_the_kl(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A worked number: p = (0.7, 0.2, 0.1) against q = (0.2, 0.3, 0.5)."""
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    found, wanted = function(p.log(), q.log()), kl.kl_divergence(p, q)
    assert abs(found - wanted) < 1e-5, f"KL is {found:.4f} and not {wanted:.4f}"


def drift_under(function: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Mean KL in nats of 20 runs that start at the reference and descend this penalty alone, with Adam."""
    reference = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    generator = torch.Generator().manual_seed(0)
    history = kl_estimators.descend(
        kl_estimators.as_loss,
        function,
        reference,
        reference,
        runs=20,
        steps=300,
        samples=8,
        lr=0.02,
        generator=generator,
    )
    return history[:, -1].mean().item()


def lowest_ratio(function: Callable[[Tensor, Tensor], Tensor]) -> float:
    """The lowest ratio that forty updates on one group of the toy LM reach, on this surrogate."""
    lowest = []

    def loss(logp: Tensor, logp_old: Tensor, logp_ref: Tensor, advantages: Tensor, mask: Tensor, *, beta: float = 0.0):
        log_ratio = logp - logp_old
        lowest.append(log_ratio.min().exp().item())
        return -aggregation.mean_of_sequence_means(function(log_ratio, advantages.unsqueeze(-1).expand_as(logp)), mask)

    settings = toylm.GrpoSettings(steps=1, lr=0.1, beta=0.0, inner_updates=40, seed=48, loss=loss)
    toylm.train(settings, keep_groups=False)
    return min(lowest)


def distance_to_optimum(function: Callable[[Tensor, Tensor], Tensor], *, beta: float = 0.6) -> float:
    """KL(π‖π*) in nats where exact ascent of E[r] − β·function comes to rest, on the three answers of chapter 1."""
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    rewards = torch.tensor([-0.5, 0.7, 1.1], dtype=torch.float64)
    logits = q.log().requires_grad_()
    for _ in range(400):
        logp = logits.log_softmax(-1)
        objective = exact.expected_value(logits, rewards) - beta * function(logp, q.log())
        (gradient,) = torch.autograd.grad(objective, logits)
        logits = (logits + gradient).detach().requires_grad_()
    p = logits.detach().softmax(-1)
    return kl.kl_divergence(p, closed_form.optimal_policy(q, rewards, beta=beta)).item()


def _k1_effect() -> Effect:
    runs = (drift_under(twin) for twin in (penalty_k2, penalty_k1))
    return Effect("KL to the reference in nats, trained on the KL alone", *runs)


def _max_effect() -> Effect:
    runs = (lowest_ratio(twin) for twin in (kept_when_wrong, dropped_when_wrong))
    return Effect("lowest ratio in 40 updates on one group, clip 0.2", *runs)


def _direction_effect() -> Effect:
    runs = (distance_to_optimum(twin) for twin in (kl_to_reference, kl_from_reference))
    return Effect("KL to the optimum in nats, where exact ascent rests", *runs)


PITFALLS = (
    Pitfall(
        "k1 as a loss",
        "The KL grows although it is the only thing that is trained down.",
        penalty_k2,
        penalty_k1,
        assert_gradient_is_that_of_the_kl,
        _k1_effect,
    ),
    Pitfall(
        "max for bad tokens",
        "With several updates a batch, ratios run far out of the interval, and the clip share looks ordinary.",
        kept_when_wrong,
        dropped_when_wrong,
        assert_clip_ends_only_past_the_goal,
        _max_effect,
    ),
    Pitfall(
        "kl_div the wrong way",
        "The penalty is positive and falls as it should, and training rests at another policy.",
        kl_to_reference,
        kl_from_reference,
        assert_direction_of_the_kl,
        _direction_effect,
    ),
)
