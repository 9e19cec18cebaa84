"""Where a method stops: the policy at which its *expected* step is zero, and how far that is from π*.

Policies are softmax tables over K completions. A field maps logits to the direction the method moves them on average,
all groups enumerated; its zero is found by following it and then by Newton's method. Nothing here is sampled, so what
remains is the method, not its noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import advantages, checks, closed_form, exact, kl, preference
from labsrc.toylm import exact_policy
from labsrc.toylm.model import Decoder
from labsrc.toylm.tasks import Task

Field = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FixedPoint:
    """A policy (K,) that the method does not move, and how it compares with π* of the same β.

    residual: the largest component of the field there; stable: whether the field leads back after a small push;
    kl_to_optimum: KL(policy‖π*), nats.
    """

    policy: Tensor
    residual: float
    stable: bool
    optimum: Tensor
    kl_to_optimum: float


def group_field(
    reference: Tensor, rewards: Tensor, *, beta: float, group_size: int, advantage: Callable, kl_field: Field
) -> Field:
    """Expected group gradient with `advantage`, less β times a KL direction."""
    return lambda logits: (
        exact.group_gradient(logits, rewards, advantage, group_size=group_size) - beta * kl_field(logits)
    )


def true_kl_field(reference: Tensor) -> Field:
    """∇KL(π‖π_ref): what k1 in the reward, k2 as a loss on-policy, or ρ·k3 give on average."""
    return lambda logits: exact.kl_gradient(logits, reference.log())


def fixed_sample_k3_field(reference: Tensor) -> Field:
    """The mean gradient of k3 on samples that are held fixed: that of KL(π_ref‖π), not of KL(π‖π_ref)."""

    def field(logits: Tensor) -> Tensor:
        leaf = logits.detach().requires_grad_()
        logp = torch.log_softmax(leaf, -1)
        value = (logp.detach().exp() * kl.kl_k3(logp, reference.log())).sum()
        return torch.autograd.grad(value, leaf)[0]

    return field


def population_dpo_loss(logp: Tensor, logp_ref: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """DPO's loss with every pair of completions, each drawn from the reference and labelled by Bradley–Terry.

    logp, logp_ref, rewards: (K,). Returns a scalar: Σ_ab q_a·q_b·σ(r_a − r_b)·(−log σ(β·h_ab)).
    """
    pairs = logp_ref.exp()[:, None] * logp_ref.exp()[None, :]
    chosen, rejected = torch.broadcast_tensors(logp[:, None], logp[None, :])
    ref_chosen, ref_rejected = torch.broadcast_tensors(logp_ref[:, None], logp_ref[None, :])
    label = preference.preference_log_prob(*torch.broadcast_tensors(rewards[:, None], rewards[None, :])).exp()
    return (pairs * label * preference.dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=beta)).sum()


def dpo_field(reference: Tensor, rewards: Tensor, *, beta: float) -> Field:
    """Down the gradient of `population_dpo_loss`."""

    def field(logits: Tensor) -> Tensor:
        leaf = logits.detach().requires_grad_()
        loss = population_dpo_loss(torch.log_softmax(leaf, -1), reference.log(), rewards, beta=beta)
        return -torch.autograd.grad(loss, leaf)[0]

    return field


def method_fields(reference: Any, rewards: Any, *, beta: float, group_size: int) -> dict[str, Field]:
    """The expected step of each method, on-policy, by the name it is told of in chapter 5.

    reference: (K,) probabilities, all > 0; rewards: (K,). K^G must be enumerable. Raises ValueError for anything else.
    """
    reference, rewards = checks.distribution("reference", reference), checks.finite("rewards", rewards)
    if (reference <= 0).any():
        raise ValueError(f"reference must give every completion some probability; got {reference.tolist()}")
    checks.same_shape(reference=reference, rewards=rewards)
    beta = checks.positive("beta", beta)
    group = {"reference": reference, "rewards": rewards, "beta": beta, "group_size": group_size}
    true, k3 = true_kl_field(reference), fixed_sample_k3_field(reference)
    return {
        "leave-one-out, true KL gradient": group_field(**group, advantage=advantages.leave_one_out, kl_field=true),
        "group mean, true KL gradient": group_field(**group, advantage=advantages.centered, kl_field=true),
        "leave-one-out, k3 on fixed samples": group_field(**group, advantage=advantages.leave_one_out, kl_field=k3),
        "GRPO as published": group_field(**group, advantage=advantages.standardized, kl_field=k3),
        "DPO, population preferences": dpo_field(reference, rewards, beta=beta),
    }


def fixed_points(reference: Any, rewards: Any, *, beta: float, group_size: int) -> dict[str, FixedPoint]:
    """The fixed point of every method of `method_fields`, found from the reference."""
    fields = method_fields(reference, rewards, beta=beta, group_size=group_size)
    reference = checks.float_tensor("reference", reference)
    optimum = closed_form.optimal_policy(reference, rewards, beta=beta)
    return {name: fixed_point(field, reference.log(), optimum=optimum) for name, field in fields.items()}


def fixed_point(
    field: Field, logits: Tensor, *, optimum: Tensor, follow: int = 400, tolerance: float = 1e-12
) -> FixedPoint:
    """Follow the field for at most `follow` steps, then solve field = 0 by Newton's method.

    Raises ValueError when no zero is found to within `tolerance`: the method has no fixed point near where it leads.
    """
    logits = _followed(field, logits, follow)
    for _ in range(50):
        value = field(logits)
        if value.abs().max() <= tolerance:
            break
        logits = _newton_step(field, logits, value)
    residual = field(logits).abs().max().item()
    if residual > tolerance:
        raise ValueError(f"field must have a zero where it leads; the residual stays at {residual:.2g}")
    policy = torch.softmax(logits, -1)
    # Adding a constant to all logits changes nothing: that direction is left out of the question of stability.
    rates = torch.linalg.eigvals(_jacobian(field, logits)).real
    rates = rates[rates.abs().argsort()[1:]]
    distance = kl.kl_divergence(policy, optimum).item()
    return FixedPoint(policy, residual, bool((rates < 0).all()), optimum, distance)


def _followed(field: Field, logits: Tensor, steps: int) -> Tensor:
    """Steps along the field whose size grows while it keeps its direction and shrinks where it turns."""
    size, previous = 1.0, None
    for _ in range(steps):
        value = field(logits)
        if value.abs().max() < 1e-4:  # close enough for Newton's method
            break
        if previous is not None:
            size = min(size * 1.2, 50.0) if (value @ previous) > 0 else size / 2
        logits, previous = logits + size * value, value
    return logits


def _jacobian(field: Field, logits: Tensor, width: float = 1e-5) -> Tensor:
    steps = width * torch.eye(len(logits), dtype=logits.dtype)
    return torch.stack([(field(logits + step) - field(logits - step)) / (2 * width) for step in steps], 1)


def _newton_step(field: Field, logits: Tensor, value: Tensor) -> Tensor:
    # The Jacobian has no inverse along "add a constant": the smallest solution stays away from it.
    step = torch.linalg.lstsq(_jacobian(field, logits), -value, rcond=1e-9, driver="gelsd").solution
    for _ in range(30):
        if field(logits + step).abs().max() < value.abs().max():
            break
        step = step / 2
    return logits + step


def fit_decoder(policy: Decoder, loss: Callable[[], Tensor], *, steps: int, tolerance: float = 1e-14) -> float:
    """Minimise `loss`, a noiseless function of the policy's parameters, in place by L-BFGS; returns its last value."""
    optimizer = torch.optim.LBFGS(
        policy.parameters(),
        max_iter=steps,
        history_size=30,
        tolerance_grad=tolerance,
        tolerance_change=tolerance,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    return loss().item()


def fit_objective(policy: Decoder, reference: Decoder, task: Task, *, beta: float, steps: int = 300) -> float:
    """Move the decoder to the maximum of the exact E[r] − β·KL; returns KL(π‖π*), nats: what it cannot represent."""
    fit_decoder(policy, lambda: -exact_policy.regularized_objective(policy, reference, task, beta=beta), steps=steps)
    return exact_policy.distance_to_optimum(policy, reference, task, beta=beta)


def fit_population_preferences(
    policy: Decoder, reference: Decoder, task: Task, *, beta: float, steps: int = 300
) -> float:
    """Move the decoder to the minimum of DPO's loss over all pairs; returns KL(π‖π*), nats."""
    with torch.no_grad():
        tables, rewards = exact_policy.policy_table(reference, task), exact_policy.reward_table(task)

    def loss() -> Tensor:
        rows = zip(exact_policy.policy_table(policy, task), tables, rewards, strict=True)
        return torch.stack([population_dpo_loss(logp, ref, reward, beta=beta) for logp, ref, reward in rows]).mean()

    fit_decoder(policy, loss, steps=steps)
    return exact_policy.distance_to_optimum(policy, reference, task, beta=beta)
