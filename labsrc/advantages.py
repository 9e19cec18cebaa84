"""Advantages from a group of rewards, without a critic (chapter 3).

Rewards are (…, G): the last axis is one group, G completions of one prompt; a batch is (P, G). Advantages have the
shape of the rewards and are constants to the policy. Two letters that are not one: `std_eps` guards a division,
the clip radius is elsewhere. `ddof` is 0 for the population deviation, 1 for the sample deviation.
A group of equal rewards gets exactly 0, in every dtype: the rounding residue r − mean(r) of such a group may be
as large as a small std_eps, and would come out as an advantage near one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks


def centered(rewards: Any) -> Tensor:
    """A_i = r_i − mean(r) within each group; its expected gradient is (1 − 1/G)·∇J.

    rewards: (…, G), G ≥ 2. Returns that shape, in units of reward. Raises ValueError for a group of one or a
    non-finite reward. Source: the numerator of DeepSeekMath arXiv 2402.03300, §4.1.2; Dr. GRPO arXiv 2503.20783.

    >>> centered([[1.0, 2.0, 6.0]])
    tensor([[-2., -1.,  3.]], dtype=torch.float64)
    """
    rewards = _groups(rewards)
    return torch.where(_is_constant(rewards), 0.0, rewards - rewards.mean(-1, keepdim=True))


def leave_one_out(rewards: Any) -> Tensor:
    """A_i = r_i − mean of the *other* rewards = G/(G − 1)·(r_i − mean(r)); its expected gradient is ∇J.

    Shapes, unit and refusals as `centered`. Source: RLOO arXiv 2402.14740.
    """
    rewards = _groups(rewards)
    group_size = rewards.shape[-1]
    return centered(rewards) * (group_size / (group_size - 1))


def standardized(rewards: Any, *, std_eps: float = 1e-4, ddof: int = 0) -> Tensor:
    """A_i = (r_i − mean(r))/(std(r) + std_eps) within each group.

    rewards: (…, G), G ≥ 2. Returns that shape, without unit. std_eps ≥ 0; ddof 0 or 1. Raises ValueError for
    anything else. Source: DeepSeekMath arXiv 2402.03300, §4.1.2, which says only "std".

    >>> standardized([0.2, 0.8, 1.4, 0.6])
    tensor([-1.2699,  0.1154,  1.5008, -0.3463], dtype=torch.float64)
    """
    rewards, std_eps, ddof = _groups(rewards), *_scale_options(std_eps, ddof)
    return _divide(centered(rewards), rewards.std(-1, correction=ddof, keepdim=True), std_eps)


def batch_standardized(rewards: Any, *, std_eps: float = 1e-4, ddof: int = 0) -> Tensor:
    """A_i = (r_i − mean of its group)/(std of *all* rewards + std_eps): the mean by group, the scale by batch.

    rewards: (P, G) or (…, P, G); the deviation is taken over every entry. As `standardized` otherwise.
    Source: Lite PPO arXiv 2508.08221.
    """
    rewards, std_eps, ddof = _groups(rewards), *_scale_options(std_eps, ddof)
    return _divide(centered(rewards), rewards.std(correction=ddof), std_eps)


def standardized_excluding_missing(rewards: Any, *, std_eps: float = 1e-4, ddof: int = 0) -> Tensor:
    """`standardized` over the rewards that exist; a missing one (NaN) is left out of the statistics and gets 0.

    rewards: (…, G) with NaN for "no scorer could grade this". A group with one valid reward, or none, gets zeros.
    Raises ValueError for an infinite reward and as `standardized` does. Source: the behaviour of TRL 1.16.0.
    """
    rewards = checks.float_tensor("rewards", rewards)
    present = ~rewards.isnan()
    filled, std_eps, ddof = _groups(torch.where(present, rewards, 0.0)), *_scale_options(std_eps, ddof)
    count = present.sum(-1, keepdim=True)
    mean = filled.sum(-1, keepdim=True) / count.clamp(min=1)
    largest = torch.where(present, filled, -torch.inf).amax(-1, keepdim=True)
    smallest = torch.where(present, filled, torch.inf).amin(-1, keepdim=True)
    deviation = torch.where(present & (largest > smallest), filled - mean, 0.0)
    variance = deviation.square().sum(-1, keepdim=True) / (count - ddof).clamp(min=1)
    return _divide(deviation, variance.sqrt(), std_eps)


def sum_then_normalize(rewards_by_source: Any, weights: Any, *, std_eps: float = 1e-4, ddof: int = 0) -> Tensor:
    """`standardized` applied to Σ_s w_s·r_s: several rewards become one before the group sees them.

    rewards_by_source: (S, P, G), one (P, G) table a scorer; weights: (S,). Returns (P, G), without unit. Raises
    ValueError for shapes that do not fit, and as `standardized` does. Source: the default of TRL 1.16.0.
    """
    return standardized(_weighted_sum(*_sources(rewards_by_source, weights)), std_eps=std_eps, ddof=ddof)


def normalize_then_sum(rewards_by_source: Any, weights: Any, *, std_eps: float = 1e-4, ddof: int = 0) -> Tensor:
    """Each reward standardised in its group, then Σ_s w_s·A_s standardised over the whole batch.

    Arguments and refusals as `sum_then_normalize`; each source keeps its say whatever its scale.
    Source: GDPO arXiv 2601.05242.
    """
    rewards_by_source, weights = _sources(rewards_by_source, weights)
    total = _weighted_sum(standardized(rewards_by_source, std_eps=std_eps, ddof=ddof), weights)
    advantages = standardized(total.flatten(), std_eps=std_eps, ddof=ddof).reshape(total.shape)
    # The batch mean is zero but for rounding, which must not move a group that every source finds constant.
    return torch.where(_is_constant(rewards_by_source).all(0), 0.0, advantages)


def is_constant_group(rewards: Any) -> Tensor:
    """True for a group whose rewards are all equal: its policy gradient is zero.

    rewards: (…, G), G ≥ 2. Returns (…) of booleans. Raises ValueError as `centered` does.
    """
    return _is_constant(_groups(rewards)).squeeze(-1)


def _groups(rewards: Any, name: str = "rewards") -> Tensor:
    rewards = checks.finite(name, rewards)
    if rewards.dim() == 0 or rewards.shape[-1] < 2:
        raise ValueError(f"{name} must hold groups of at least 2 on the last axis; got shape {tuple(rewards.shape)}")
    return rewards


def _is_constant(rewards: Tensor) -> Tensor:
    return rewards.amax(-1, keepdim=True) == rewards.amin(-1, keepdim=True)


def _scale_options(std_eps: float, ddof: int) -> tuple[float, int]:
    return checks.non_negative("std_eps", std_eps), checks.one_of("ddof", ddof, (0, 1))


def _divide(deviation: Tensor, std: Tensor, std_eps: float) -> Tensor:
    # A zero deviation stays zero even where the guarded denominator is zero too.
    denominator = std + std_eps
    return torch.where(deviation == 0, 0.0, deviation / torch.where(denominator == 0, 1.0, denominator))


def _sources(rewards_by_source: Any, weights: Any) -> tuple[Tensor, Tensor]:
    rewards_by_source = _groups(rewards_by_source, "rewards_by_source")
    weights = checks.finite("weights", weights)
    if rewards_by_source.dim() != 3 or tuple(weights.shape) != rewards_by_source.shape[:1]:
        shapes = f"{tuple(rewards_by_source.shape)} and {tuple(weights.shape)}"
        raise ValueError(f"rewards_by_source must be (S, P, G) and weights (S,); got {shapes}")
    return rewards_by_source, weights


def _weighted_sum(tables: Tensor, weights: Tensor) -> Tensor:
    return torch.einsum("s,spg->pg", weights.to(tables.dtype), tables)
