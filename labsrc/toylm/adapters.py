"""Low-rank adapters: every matrix W becomes W + scale·B·A, and only A and B are trained (chapter 6).

B starts at zero, so the adapted policy starts as its base, bit for bit. The base stays where it is, so the policy with
its adapters switched off *is* the reference: no second copy is held. Source: LoRA arXiv 2106.09685.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from labsrc import checks
from labsrc.toylm.model import Decoder, parameter_count
from labsrc.toylm.online import OnlineTrainer
from labsrc.toylm.settings import OnlineSettings


class LowRank(nn.Module):
    """W ↦ W + scale·B·A with A (rank, columns) drawn and B (rows, rank) zero; W itself while switched off."""

    def __init__(self, weight: Tensor, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = weight.shape
        drawn = torch.randn(rank, columns, dtype=weight.dtype, generator=generator) / math.sqrt(columns)
        self.down = nn.Parameter(drawn)
        self.up = nn.Parameter(weight.new_zeros(rows, rank))
        self.scale, self.on = scale, True

    def forward(self, weight: Tensor) -> Tensor:
        """The adapted matrix."""
        return weight + self.scale * (self.up @ self.down) if self.on else weight


def attach(policy: Decoder, *, rank: int, scale: float = 1.0, seed: int = 0) -> list[nn.Parameter]:
    """Freeze the policy, give each matrix of its blocks and its head an adapter, in place; returns their parameters.

    The head too: a freshly drawn one is small, and what stands before it has a fixed size, so that alone no token could
    become probable. rank ≥ 1 and at most the smallest side of a matrix; scale > 0. Raises ValueError otherwise, or
    where there are adapters already.
    """
    matrices = [(part, name) for part in (*policy.blocks, policy.head) for name in _matrices(part)]
    if not matrices:
        raise ValueError(f"policy must have no adapters yet; got one with {len(_adapters(policy))}")
    smallest = min(min(getattr(part, name).shape) for part, name in matrices)
    if checks.integer_at_least("rank", rank, 1) > smallest:
        raise ValueError(f"rank must be at most {smallest}, the smallest side of a matrix; got {rank!r}")
    checks.positive("scale", scale)
    generator = torch.Generator().manual_seed(checks.integer_at_least("seed", seed, 0))
    policy.requires_grad_(False)
    for part, name in matrices:
        adapter = LowRank(getattr(part, name), rank, scale, generator)
        parametrize.register_parametrization(part, name, adapter)
    return [weight for adapter in _adapters(policy) for weight in (adapter.down, adapter.up)]


def _matrices(part: nn.Module) -> list[str]:
    return [name for name, weight in part.named_parameters(recurse=False) if weight.dim() == 2]


def _adapters(policy: nn.Module) -> list[LowRank]:
    return [module for module in policy.modules() if isinstance(module, LowRank)]


@contextmanager
def switched_off(policy: Decoder) -> Iterator[Decoder]:
    """The base of an adapted policy, for as long as the block lasts."""
    adapters = _adapters(policy)
    for adapter in adapters:
        adapter.on = False
    try:
        yield policy
    finally:
        for adapter in adapters:
            adapter.on = True


class Base(nn.Module):
    """A policy as it is without its adapters; holds no weights of its own."""

    def __init__(self, policy: Decoder) -> None:
        super().__init__()
        self._policy = (policy,)  # in a tuple it is not registered, so its weights are not counted as this one's

    @torch.no_grad()
    def forward(self, tokens: Tensor, cache: Any = None) -> Any:
        """As the policy's, its adapters switched off."""
        with switched_off(self._policy[0]) as base:
            return base(tokens, cache)


class AdapterTrainer(OnlineTrainer):
    """An online method that trains adapters of `rank`, with the base as its reference."""

    def __init__(self, settings: OnlineSettings, *, rank: int) -> None:
        self.rank = rank
        super().__init__(settings)
        self.reference = Base(self.policy)
        self.cost.trained_parameters = parameter_count(self.policy)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The adapters' parameters, which are made here."""
        return [{"params": attach(self.policy, rank=self.rank), "lr": self.settings.lr}]
