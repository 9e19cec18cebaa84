"""What the clipped surrogate does when it is climbed: exact gradients on one softmax policy (chapter 4).

The batch is not sampled unless a function says so: every action a counts with its probability under the policy that
made the batch, so that what is seen is the objective's doing and not chance.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, policy_gradient


def expected_surrogate(
    logits: Any, policy_old: Any, advantages: Any, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Σ_a π_old(a)·min(ρA, clip(ρ)·A) with ρ = softmax(logits)/π_old: the clipped surrogate of an endless batch.

    logits, policy_old, advantages: (…, K); logits carry the gradient, policy_old holds probabilities > 0. Returns (…)
    in units of advantage. Raises ValueError as `policy_gradient.clipped_surrogate` does.
    Source: PPO arXiv 1707.06347, eq. 7, its expectation taken exactly.
    """
    policy_old, advantages = _batch(policy_old, advantages)
    log_ratio = torch.log_softmax(checks.finite("logits", logits), -1) - policy_old.log()
    surrogate = policy_gradient.clipped_surrogate(log_ratio, advantages, clip_low=clip_low, clip_high=clip_high)
    return (policy_old * surrogate).sum(-1)


@torch.enable_grad()
def ascend(
    policy_old: Any, advantages: Any, *, steps: int, lr: float, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Gradient ascent on `expected_surrogate` from π_old; returns the ratios ρ(a), (…, steps + 1, K), ones first.

    policy_old: (…, K) probabilities > 0; advantages: (…, K); lr: step on the logits, > 0. No momentum, and one batch
    for all steps. Raises ValueError for anything else, and where a step so large is taken that a ratio overflows.
    """
    policy_old, advantages = _batch(policy_old, advantages)
    steps, lr = checks.integer_at_least("steps", steps, 1), checks.positive("lr", lr)
    logits = logp_old = policy_old.log()
    ratios = [torch.ones_like(policy_old)]
    for _ in range(steps):
        leaf = logits.detach().requires_grad_()
        value = expected_surrogate(leaf, policy_old, advantages, clip_low=clip_low, clip_high=clip_high)
        # Runs share no logit, so the gradient of their sum is each run's own.
        logits = leaf.detach() + lr * torch.autograd.grad(value.sum(), leaf)[0]
        ratios.append((torch.log_softmax(logits, -1) - logp_old).exp())
    return torch.stack(ratios, -2)


@dataclass(frozen=True)
class Run:
    """One ascent: the policy that made the batch, the rewards, and the ratios (steps + 1, K)."""

    policy_old: list[float]
    rewards: list[float]
    ratios: Tensor

    @property
    def final_ratios(self) -> list[float]:
        """ρ(a) after the last step."""
        return self.ratios[-1].tolist()


@dataclass(frozen=True)
class Search:
    """What `search_runs` found: the runs with the lowest and the highest final ratio, and counts of runs.

    left: ended outside [1 − clip, 1 + clip]. moving: after the last step some action still has its incentive.
    restless: can never rest, since good answers of total probability g would have to reach (1 + clip)·g ≥ 1.
    """

    lowest: Run
    highest: Run
    left: int
    moving: int
    restless: int
    tried: int


def search_runs(*, actions: int = 3, parts: int = 10, steps: int = 500, lr: float = 0.1, clip: float = 0.2) -> Search:
    """Climb from every policy in multiples of 1/parts, with every table of 0/1 rewards, and keep the widest runs.

    Policies are listed with probabilities that do not rise, since the order of actions changes nothing; rewards that
    are all equal are left out. A run left the interval if a final ratio is more than 0.01 outside [1 − clip, 1 + clip].
    Ties, judged by six decimals, go to the run listed first. Raises ValueError for fewer than 2 actions or for parts
    that cannot give each action at least one.
    """
    actions = checks.integer_at_least("actions", actions, 2)
    parts = checks.integer_at_least("parts", parts, actions)
    shares = [s for s in itertools.product(range(parts, 0, -1), repeat=actions) if sum(s) == parts]
    shares = [s for s in shares if list(s) == sorted(s, reverse=True)]
    tables = [r for r in itertools.product((1.0, 0.0), repeat=actions) if len(set(r)) > 1]
    pairs = list(itertools.product(shares, tables))
    policies = torch.tensor([share for share, _ in pairs], dtype=torch.float64) / parts
    rewards = torch.tensor([table for _, table in pairs], dtype=torch.float64)
    good = (policies * rewards).sum(-1, keepdim=True)  # the probability of a good answer, and the mean reward
    ratios = ascend(policies, rewards - good, steps=steps, lr=lr, clip_low=clip, clip_high=clip)
    final = ratios[:, -1]
    lows = [round(low, 6) for low in final.amin(-1).tolist()]
    highs = [round(high, 6) for high in final.amax(-1).tolist()]

    def run(index: int) -> Run:
        return Run(policies[index].tolist(), rewards[index].tolist(), ratios[index])

    left = (final < 1 - clip - 0.01) | (final > 1 + clip + 0.01)
    moving = torch.where(rewards > 0, final < 1 + clip, final > 1 - clip)
    restless = (1 + clip) * good > 1 - 1e-9  # a g of exactly 1/(1 + clip) would leave the bad ones nothing
    return Search(
        lowest=run(lows.index(min(lows))),
        highest=run(highs.index(max(highs))),
        left=left.any(-1).sum().item(),
        moving=moving.any(-1).sum().item(),
        restless=restless.sum().item(),
        tried=len(pairs),
    )


@dataclass(frozen=True)
class Epoch:
    """One pass over a batch in mini-batches; entry u of each list is what update u *saw*, before it moved anything.

    ratios: (updates + 1, K), the last row after the last update. clipped: share of the mini-batch's samples that the
    clip had taken out of the gradient.
    """

    ratios: Tensor
    clipped: list[float]


@torch.enable_grad()
def one_epoch(
    policy_old: Any,
    advantages: Any,
    *,
    rollouts: int,
    minibatch: int,
    lr: float,
    generator: torch.Generator,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Epoch:
    """Sample `rollouts` actions from π_old, then one gradient step a mini-batch until each was used once.

    policy_old, advantages: (K,). rollouts must be a multiple of minibatch. lr: step on the logits along the mean
    clipped surrogate of the mini-batch. Raises ValueError for anything else.
    """
    policy_old, advantages = _batch(policy_old, advantages)
    minibatch = checks.integer_at_least("minibatch", minibatch, 1)
    if checks.integer_at_least("rollouts", rollouts, 1) % minibatch:
        raise ValueError(f"rollouts must be a multiple of minibatch = {minibatch}; got {rollouts}")
    radii = {"clip_low": clip_low, "clip_high": clip_high}
    lr, logits, logp_old = checks.positive("lr", lr), policy_old.log(), policy_old.log()
    sampled = torch.multinomial(policy_old, rollouts, replacement=True, generator=generator)
    ratios, clipped = [torch.ones_like(policy_old)], []
    for actions in sampled.split(minibatch):
        leaf = logits.detach().requires_grad_()
        log_ratio = (torch.log_softmax(leaf, -1) - logp_old)[actions]
        signal, everyone = advantages[actions], torch.ones(1, minibatch, dtype=torch.bool)
        clipped.append(policy_gradient.clip_fraction(log_ratio[None], signal[None], everyone, **radii).total)
        value = policy_gradient.clipped_surrogate(log_ratio, signal, **radii).mean()
        logits = leaf.detach() + lr * torch.autograd.grad(value, leaf)[0]
        ratios.append((torch.log_softmax(logits, -1) - logp_old).exp())
    return Epoch(ratios=torch.stack(ratios), clipped=clipped)


def _batch(policy_old: Any, advantages: Any) -> tuple[Tensor, Tensor]:
    policy_old = checks.distribution("policy_old", policy_old).detach()
    advantages = checks.finite("advantages", advantages).detach()
    checks.same_shape(policy_old=policy_old, advantages=advantages)
    if (policy_old == 0).any():
        raise ValueError("policy_old must give every action a probability above 0; got a 0, whose ratio is undefined")
    return policy_old, advantages
