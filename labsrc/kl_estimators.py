"""Where a KL estimate may stand in a loss, and which gradient each place gives: enumerated, not sampled (chapter 4).

Two choices are independent: the *estimator* (k1, k2, k3 of `labsrc.kl`) and its *placement*, one function each below.
A placement takes (estimator, logp, logp_old, logp_ref), of one shape, in nats, and returns the term of the loss per
sample, to be minimised; `logp` alone carries the gradient. Its value may mean nothing: what counts is its gradient.
ρ = π/π_old, and stop() marks what is held constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, exact, kl

Estimator = Callable[[Any, Any], Tensor]
Placement = Callable[[Estimator, Tensor, Tensor, Tensor], Tensor]

ESTIMATORS: dict[str, Estimator] = {"k1": kl.kl_k1, "k2": kl.kl_k2, "k3": kl.kl_k3}


def as_loss(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """k: the estimate itself, differentiated on the samples as they are. Source: DeepSeekMath arXiv 2402.03300."""
    return estimator(logp, logp_ref)


def as_loss_ratio_detached(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """stop(ρ)·k: the samples are reweighted, but the weight is a constant."""
    return kl.ratio_weighted(estimator(logp, logp_ref), (logp - logp_old).detach())


def as_loss_ratio_in_graph(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """ρ·k: reweighted, and the weight is differentiated too. Source (with k3): DeepSeek-V3.2 arXiv 2512.02556."""
    return kl.ratio_weighted(estimator(logp, logp_ref), logp - logp_old)


def in_reward(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """stop(k)·log π: a cost in the reward of plain REINFORCE, the samples as they are."""
    return estimator(logp, logp_ref).detach() * logp


def in_reward_with_ratio(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """ρ·stop(k): a cost in the reward of an importance-weighted surrogate, recomputed at every update."""
    return kl.ratio_weighted(estimator(logp, logp_ref).detach(), logp - logp_old)


def in_snapshot_reward(estimator: Estimator, logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """ρ·k(π_old): the cost was computed once, when the batch was sampled, as PPO-style RLHF does.

    Source: Ziegler et al. 2019, arXiv 1909.08593.
    """
    return kl.ratio_weighted(estimator(logp_old, logp_ref), logp - logp_old)


PLACEMENTS: dict[str, Placement] = {
    "loss": as_loss,
    "loss, ρ detached": as_loss_ratio_detached,
    "loss, ρ in graph": as_loss_ratio_in_graph,
    "reward": in_reward,
    "reward, with ρ": in_reward_with_ratio,
}


@dataclass(frozen=True)
class ValueMoments:
    """Mean and variance of a number, over all that may be sampled."""

    mean: float
    variance: float


def value_moments(values: Any, logits: Any) -> ValueMoments:
    """E[f] and Var[f] of f(a) when a is drawn from softmax(logits): exact, by visiting every action.

    values, logits: (K,). Raises ValueError as `exact.expected_value` does.
    """
    mean = exact.expected_value(logits, values)
    deviation = checks.finite("values", values) - mean.unsqueeze(-1)
    return ValueMoments(mean=mean.item(), variance=exact.expected_value(logits, deviation.square()).item())


@torch.enable_grad()
def gradient_moments(
    placement: Placement, estimator: Estimator, logits: Any, logits_ref: Any, *, logits_old: Any = None
) -> exact.GradientMoments:
    """Mean (K,) and covariance (K, K) of the gradient that one sample gives, on the logits, by visiting every action.

    logits, logits_ref, logits_old: (K,). The samples come from softmax(logits_old); by default that is the policy
    itself (on-policy, ρ = 1). Returns numbers, in nats; no gradient flows through them. Raises ValueError for
    non-finite logits or for lists of different actions.
    """
    logits, logits_ref, logits_old = _policies(logits, logits_ref, logits_old)
    leaf = logits.clone().requires_grad_()
    logp, logp_old, logp_ref = (torch.log_softmax(z, -1) for z in (leaf, logits_old, logits_ref))
    terms = placement(estimator, logp, logp_old, logp_ref)
    by_sample = torch.stack([torch.autograd.grad(term, leaf, retain_graph=True)[0] for term in terms])
    return exact.GradientMoments.of(logp_old.exp(), by_sample)


@dataclass(frozen=True)
class TableRow:
    """One cell of the table: where the estimate stands, which one, who sampled, and the gradient that results.

    equals: "∇KL(π‖ref)", "∇KL(ref‖π)", "0", or "" where it is none of them. cosine: of the angle to ∇KL(π‖ref); below
    0 a step along −gradient raises the KL. NaN for a zero gradient.
    """

    placement: str
    estimator: str
    on_policy: bool
    gradient: Tensor
    equals: str
    cosine: float


def gradient_table(logits: Any, logits_ref: Any, *, logits_old: Any) -> list[TableRow]:
    """Every estimator in every placement, on samples of π and on samples of π_old: 30 gradients, each exact.

    logits, logits_ref, logits_old: (K,). Raises ValueError as `gradient_moments` does.
    """
    logits, logits_ref, logits_old = _policies(logits, logits_ref, logits_old)
    rows = []
    for on_policy in (True, False):
        for name, placement in PLACEMENTS.items():
            for symbol, estimator in ESTIMATORS.items():
                sampler = logits if on_policy else logits_old
                gradient = gradient_moments(placement, estimator, logits, logits_ref, logits_old=sampler).mean
                known, cosine = compared(gradient, logits, logits_ref)
                rows.append(TableRow(name, symbol, on_policy, gradient, known, cosine))
    return rows


def compared(gradient: Tensor, logits: Tensor, logits_ref: Tensor) -> tuple[str, float]:
    """`TableRow.equals` and `TableRow.cosine` of one gradient: the exact one it equals, and the angle to ∇KL(π‖ref).

    gradient, logits, logits_ref: (K,). Raises ValueError as `exact.kl_gradient` does.
    """
    truth = exact.kl_gradient(logits, logits_ref)
    forward = torch.softmax(logits, -1) - torch.softmax(logits_ref, -1)
    known = {"∇KL(π‖ref)": truth, "∇KL(ref‖π)": forward, "0": torch.zeros_like(truth)}
    equals = next((name for name, other in known.items() if torch.allclose(gradient, other, rtol=0, atol=1e-9)), "")
    if equals == "0":
        return equals, float("nan")
    return equals, torch.nn.functional.cosine_similarity(gradient, truth, dim=0).item()


@torch.enable_grad()
def descend(
    placement: Placement,
    estimator: Estimator,
    logits: Any,
    logits_ref: Any,
    *,
    runs: int,
    steps: int,
    samples: int,
    lr: float,
    generator: torch.Generator,
) -> Tensor:
    """Train on the KL term alone, with Adam and a few fresh samples of the policy a step; KL(π‖π_ref) on the way.

    logits, logits_ref: (K,), start and reference of every run; runs differ in what they sample. Returns
    (runs, steps + 1) in nats, the start first. Raises ValueError for non-finite logits, runs, steps or samples below
    1, or lr not above 0.
    """
    logits, logits_ref, _ = _policies(logits, logits_ref, None)
    runs, steps = checks.integer_at_least("runs", runs, 1), checks.integer_at_least("steps", steps, 1)
    samples, lr = checks.integer_at_least("samples", samples, 1), checks.positive("lr", lr)
    # Adam looks at each number by itself, so rows of one tensor are runs that know nothing of each other.
    leaf = logits.repeat(runs, 1).requires_grad_()
    logp_ref = torch.log_softmax(logits_ref.repeat(runs, 1), -1)
    optimizer = torch.optim.Adam([leaf], lr=lr)
    history = [_divergence(leaf, logp_ref)]
    for _ in range(steps):
        logp = torch.log_softmax(leaf, -1)
        actions = torch.multinomial(logp.detach().exp(), samples, replacement=True, generator=generator)
        sampled, sampled_ref = logp.gather(1, actions), logp_ref.gather(1, actions)
        optimizer.zero_grad()
        placement(estimator, sampled, sampled.detach(), sampled_ref).mean(1).sum().backward()
        optimizer.step()
        history.append(_divergence(leaf, logp_ref))
    return torch.stack(history, -1)


def _divergence(logits: Tensor, logp_ref: Tensor) -> Tensor:
    return kl.kl_divergence(torch.softmax(logits.detach(), -1), logp_ref.exp())


def _policies(logits: Any, logits_ref: Any, logits_old: Any) -> tuple[Tensor, Tensor, Tensor]:
    named = {"logits": logits, "logits_ref": logits_ref, "logits_old": logits if logits_old is None else logits_old}
    tensors = {name: checks.finite(name, value).detach() for name, value in named.items()}
    checks.same_shape(**tensors)
    if tensors["logits"].dim() != 1:
        raise ValueError(f"logits must be (K,), one policy; got shape {tuple(tensors['logits'].shape)}")
    return tensors["logits"], tensors["logits_ref"], tensors["logits_old"]
