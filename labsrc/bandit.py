"""An online group bandit: GRPO on one prompt with K one-token completions (chapter 3).

At every step a group of G actions is drawn from the current policy, rewards become standardised advantages, and a few
gradient steps follow on the clipped surrogate less β·k3, all on the same group. The reference is uniform, and so is
the start. The draws are those of `numpy.random.default_rng(seed).choice(K, size=G, p=policy)`, step after step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labsrc import advantages, checks, kl, policy_gradient


@dataclass(frozen=True)
class BanditSettings:
    """One run of the bandit; ValueError for a value out of range.

    steps: groups sampled, ≥ 1. group_size: G ≥ 2. seed: ≥ 0. rewards: one finite number an action, K ≥ 2. beta: reward
    per nat, ≥ 0. lr: step size on the logits, > 0. clip: the radius of both clips, in (0, 1). inner_updates: gradient
    steps a group, ≥ 1. std_eps: guard of the standard deviation, ≥ 0.
    """

    steps: int = 80
    group_size: int = 32
    seed: int = 7
    rewards: Sequence[float] = (-0.2, 0.3, 1.0, 0.0)
    beta: float = 0.02
    lr: float = 0.18
    clip: float = 0.2
    inner_updates: int = 2
    std_eps: float = 1e-4

    def __post_init__(self) -> None:
        """Refuse what cannot be run, before anything is drawn."""
        for name, smallest in (("steps", 1), ("group_size", 2), ("seed", 0), ("inner_updates", 1)):
            checks.integer_at_least(name, getattr(self, name), smallest)
        rewards = checks.finite("rewards", self.rewards)
        if rewards.dim() != 1 or len(rewards) < 2:
            raise ValueError(f"rewards must list one number for each of at least 2 actions; got {self.rewards!r}")
        # Plain numbers, whatever array they came in: settings can be compared, and a run is float64 throughout.
        object.__setattr__(self, "rewards", tuple(rewards.tolist()))
        checks.non_negative("beta", self.beta)
        checks.positive("lr", self.lr)
        checks.open_unit_interval("clip", self.clip)
        checks.non_negative("std_eps", self.std_eps)


def train_group_bandit(
    *,
    steps: int = 80,
    group_size: int = 32,
    seed: int = 7,
    rewards: Sequence[float] = (-0.2, 0.3, 1.0, 0.0),
    beta: float = 0.02,
    lr: float = 0.18,
    clip: float = 0.2,
    inner_updates: int = 2,
    std_eps: float = 1e-4,
) -> Tensor:
    """Train one bandit and return its policy after each step: (steps, K) probabilities.

    Arguments and refusals: `BanditSettings`; also ValueError where a step so large is taken that a ratio overflows.
    """
    settings = BanditSettings(steps, group_size, seed, rewards, beta, lr, clip, inner_updates, std_eps)
    return train_group_bandits([settings])[0]


def train_group_bandits(runs: Sequence[BanditSettings]) -> Tensor:
    """Train many bandits at once and return their policies after each step: (R, steps, K) probabilities.

    runs: settings that agree in steps and in the number of actions; all else may differ. Each run gives the numbers it
    would give alone. Raises ValueError for no runs, for runs that disagree, and where a ratio of policies overflows
    because a step was far too large.
    """
    if not runs:
        raise ValueError(f"runs must hold at least one BanditSettings; got {runs!r}")
    shapes = {(run.steps, len(run.rewards)) for run in runs}
    if len(shapes) > 1:
        raise ValueError(f"runs must agree in (steps, number of actions); got {sorted(shapes)}")
    # Runs that share a group's shape and the scalar options of the loss are rows of one tensor.
    batches: dict[tuple, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        batches[run.group_size, run.clip, run.inner_updates, run.std_eps].append(index)
    (steps, actions) = shapes.pop()
    history = torch.empty(len(runs), steps, actions, dtype=torch.float64)
    for indices in batches.values():
        history[indices] = _train_batch([runs[index] for index in indices])
    return history


def _train_batch(runs: Sequence[BanditSettings]) -> Tensor:
    first = runs[0]
    # One stream a run, read in the order in which choice() would read it: G uniforms a step.
    uniforms = [np.random.default_rng(run.seed).random((run.steps, run.group_size)) for run in runs]
    uniforms = torch.from_numpy(np.stack(uniforms))  # (R, steps, G)
    rewards = checks.float_tensor("rewards", [run.rewards for run in runs])  # (R, K)
    beta = checks.float_tensor("beta", [run.beta for run in runs])
    lr = checks.float_tensor("lr", [[run.lr] for run in runs])
    logits = torch.zeros_like(rewards)
    logp_ref = torch.log_softmax(logits, -1)
    history = []
    for step in range(first.steps):
        logp_old = torch.log_softmax(logits, -1)
        actions = _draw(torch.softmax(logits, -1), uniforms[:, step])  # (R, G)
        group = advantages.standardized(rewards.gather(1, actions), std_eps=first.std_eps)
        for _ in range(first.inner_updates):
            logits = logits + lr * _ascent(logits, logp_old, logp_ref, actions, group, beta, first.clip)
        history.append(torch.softmax(logits, -1))
    return torch.stack(history, 1)


def _draw(policy: Tensor, uniforms: Tensor) -> Tensor:
    """The action whose slice of the cumulative distribution holds each uniform: NumPy's choice() with p."""
    cumulative = policy.cumsum(-1)
    return torch.searchsorted(cumulative / cumulative[:, -1:], uniforms.contiguous(), right=True)


@torch.enable_grad()
def _ascent(
    logits: Tensor, logp_old: Tensor, logp_ref: Tensor, actions: Tensor, group: Tensor, beta: Tensor, clip: float
) -> Tensor:
    """Gradient of each run's mean over its group of (clipped surrogate − β·k3)."""
    leaf = logits.detach().requires_grad_()
    logp = torch.log_softmax(leaf, -1).gather(1, actions)
    surrogate = policy_gradient.clipped_surrogate(
        logp - logp_old.gather(1, actions), group, clip_low=clip, clip_high=clip
    )
    penalty = kl.kl_k3(logp, logp_ref.gather(1, actions))
    # Runs share no parameter, so the gradient of the sum over runs is each run's own gradient.
    objective = surrogate.mean(1) - beta * penalty.mean(1)
    return torch.autograd.grad(objective.sum(), leaf)[0]
