"""What a baseline does to the score-function estimator, exactly: its mean and its variance, by enumeration (chapter 3).

A baseline may be one number for the prompt, a number for every prefix (a critic), or, to see what goes wrong, a number
for every action. Prefix values come as the tables of `labsrc.exact` do: entry t has shape (V,)*t, one value for each
of the prefixes y_<t, so that entry 0 is the value of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, exact


def single_sample_moments(logits: Any, rewards: Any, baseline: Any = 0.0) -> exact.GradientMoments:
    """Mean and covariance of (r(a) − b)·∇log p(a) for one action drawn from p = softmax(logits).

    logits, rewards: (K,); baseline: one number, whose mean is ∇J whatever it is, or (K,), one number an action, which
    in general is biased. Gradients are with respect to the logits. Raises ValueError for other shapes or non-finite
    entries. Source: Williams 1992.

    >>> single_sample_moments([0.0, 0.0], [0.0, 1.0], baseline=0.5)
    GradientMoments(mean=tensor([-0.2500,  0.2500], dtype=torch.float64), covariance=tensor([[0., 0.],
            [0., 0.]], dtype=torch.float64))
    """
    p, rewards, scores = _policy(logits, rewards)
    baseline = checks.finite("baseline", baseline).detach()
    if baseline.dim() > 1 or (baseline.dim() == 1 and len(baseline) != len(rewards)):
        shape = tuple(baseline.shape)
        raise ValueError(f"baseline must be one number or {len(rewards)}, one an action; got shape {shape}")
    return exact.GradientMoments.of(p, (rewards - baseline)[:, None] * scores)


def variance_by_baseline(logits: Any, rewards: Any, baselines: Any) -> Tensor:
    """E[(r − b)²·‖∇log p‖²] − ‖∇J‖² for each constant baseline b: a parabola in b.

    logits, rewards: (K,); baselines: any shape. Returns that shape, in squared units of reward. Raises ValueError as
    `single_sample_moments` does.
    """
    p, rewards, scores = _policy(logits, rewards)
    advantages = rewards - checks.finite("baselines", baselines).detach()[..., None]
    squares = (p * advantages.square() * scores.square().sum(-1)).sum(-1)
    return squares - exact.value_gradient(p.log(), rewards).square().sum()


def best_baseline(logits: Any, rewards: Any) -> Tensor:
    """b* = E[r·‖∇log p‖²]/E[‖∇log p‖²], the constant baseline of least variance.

    logits, rewards: (K,). Returns a scalar, in units of reward. Raises ValueError as `single_sample_moments` does, and
    for a policy that has all its mass on one action, whose score is zero. Source: Greensmith et al. 2004.
    """
    p, rewards, scores = _policy(logits, rewards)
    weight = p * scores.square().sum(-1)
    if weight.sum() == 0:
        raise ValueError("logits must give more than one action a probability above 0; got a policy of one action")
    return (weight * rewards).sum() / weight.sum()


def prefix_values(table: Sequence[Any], rewards: Any) -> list[Tensor]:
    """V(y_<t) = E[r(y) | y_<t], what a perfect critic says of each prefix: T tensors, entry t of shape (V,)*t.

    table: logits, see `labsrc.exact`; rewards: (V^T,), one a sequence in the order of `exact.sequences`. Returns units
    of reward. Raises ValueError as `exact.sequence_expected_value` does.
    """
    exact.sequence_expected_value(table, rewards)  # checks both
    steps = [torch.softmax(checks.float_tensor("table", logits).detach(), -1) for logits in table]
    value = checks.float_tensor("rewards", rewards).detach().reshape(steps[-1].shape)
    values = []
    for policy in reversed(steps):
        value = (policy * value).sum(-1)
        values.append(value)
    return values[::-1]


@torch.enable_grad()
def sequence_moments(table: Sequence[Any], rewards: Any, baselines: Sequence[Any]) -> exact.GradientMoments:
    """Mean and covariance of Σ_t (r(y) − b_t(y_<t))·∇log π(y_t | y_<t) for one sampled sequence y.

    table, rewards: as `prefix_values`. baselines: T entries, entry t one number for every prefix, or (V,)*t. The
    gradient is with respect to all logits of the table, flattened one after the other: (D,). Raises ValueError for
    other shapes and as `prefix_values` does.
    """
    prefix_shapes = [tuple(value.shape) for value in prefix_values(table, rewards)]
    if len(baselines) != len(prefix_shapes):
        raise ValueError(f"baselines must have {len(prefix_shapes)} entries, one a step; got {len(baselines)}")
    leaves = [checks.float_tensor("table", logits).detach().clone().requires_grad_() for logits in table]
    logp = exact.sequence_token_logp(leaves)  # (N, T)
    columns = []
    for step, (baseline, shape) in enumerate(zip(baselines, prefix_shapes, strict=True)):
        baseline = checks.finite(f"baselines[{step}]", baseline).detach()
        if baseline.dim() and tuple(baseline.shape) != shape:
            raise ValueError(f"baselines[{step}] must be one number or {shape}; got shape {tuple(baseline.shape)}")
        # Sequences are in lexicographic order, so those that share a prefix stand together.
        repeats = len(logp) // baseline.numel()
        columns.append(baseline.flatten().repeat_interleave(repeats))
    advantages = checks.float_tensor("rewards", rewards).detach()[:, None] - torch.stack(columns, 1)
    each = torch.eye(len(logp), dtype=logp.dtype)
    parts = torch.autograd.grad((advantages * logp).sum(1), leaves, each, is_grads_batched=True)
    return exact.GradientMoments.of(logp.detach().sum(1).exp(), torch.cat([part.flatten(1) for part in parts], 1))


def _policy(logits: Any, rewards: Any) -> tuple[Tensor, Tensor, Tensor]:
    """p (K,), rewards (K,) and the scores ∇log p(a) = onehot(a) − p, one a row."""
    logits, rewards = checks.finite("logits", logits).detach(), checks.finite("rewards", rewards).detach()
    if logits.dim() != 1 or rewards.shape != logits.shape:
        shapes = f"{tuple(logits.shape)} and {tuple(rewards.shape)}"
        raise ValueError(f"logits and rewards must both be (K,), one an action; got {shapes}")
    p = torch.softmax(logits, -1)
    return p, rewards, torch.eye(len(p), dtype=p.dtype) - p
