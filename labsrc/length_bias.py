"""What an aggregation does to the length of answers whose length earns nothing, enumerated (chapter 6).

A completion ends at each token with probability `stop`, so its length is geometric; a completion that reaches
`longest` ends there. Its reward does not depend on its length, so nothing about its length is worth learning.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labsrc import checks

Aggregation = Callable[[Tensor, Tensor], Tensor]


def length_probabilities(stop: float, *, longest: int) -> Tensor:
    """P(L = 1), …, P(L = longest) of a completion that stops with probability `stop` at each token: (longest,).

    Raises ValueError unless 0 < stop < 1 and longest ≥ 1.
    """
    stop = checks.open_unit_interval("stop", stop)
    before = (1 - stop) ** torch.arange(checks.integer_at_least("longest", longest, 1), dtype=torch.float64)
    reached = before[-1:]
    return torch.cat([before[:-1] * stop, reached])


def token_scores(stop: float, *, longest: int) -> tuple[Tensor, Tensor]:
    """∂ log π(token)/∂φ for each token of a completion of each length, φ the logit of stopping, and its mask.

    −stop for a token that goes on, 1 − stop for the one that ends; at `longest` the end is forced, and has no score.
    Returns (longest, longest), lengths by positions. Raises ValueError as `length_probabilities`.
    """
    stop = checks.open_unit_interval("stop", stop)
    lengths = torch.arange(1, checks.integer_at_least("longest", longest, 1) + 1).unsqueeze(-1)
    positions = torch.arange(1, longest + 1)
    scores = (positions == lengths).double() - stop
    scores[-1, -1] = 0.0
    return scores, positions <= lengths


def expected_push(aggregation: Aggregation, advantages: Sequence[float], *, stop: float, longest: int) -> Tensor:
    """What ascent on the aggregated surrogate does, on average, to each completion's own logit of stopping: (B,).

    advantages: one number a completion of the batch, whatever its length; every completion has a stopping logit of its
    own, as where right and wrong answers go separate ways. Positive means shorter. Visits all longest^B lengths.
    aggregation: a function of `labsrc.aggregation`. Raises ValueError as `length_probabilities`.
    """
    probabilities = length_probabilities(stop, longest=longest)
    scores, masks = token_scores(stop, longest=longest)
    advantages = checks.finite("advantages", advantages)
    push = torch.zeros(len(advantages), dtype=torch.float64)
    for lengths in itertools.product(range(longest), repeat=len(advantages)):
        rows = list(lengths)
        weights = _token_weights(aggregation, masks[rows])
        push += probabilities[rows].prod() * advantages * (weights * scores[rows]).sum(-1)
    return push


@torch.enable_grad()
def _token_weights(aggregation: Aggregation, mask: Tensor) -> Tensor:
    """By what an aggregation multiplies each token: its derivative, as it is linear in its values."""
    values = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(aggregation(values, mask), values)[0]


def sequence_mean_push(stop: float) -> float:
    """E[(1 − stop·L)/L] = −stop·log(stop)/(1 − stop) − stop: `expected_push` of a mean per sequence at A = 1, B = 1.

    The limit for longest → ∞. Positive for every stop in (0, 1), raises ValueError outside.
    """
    stop = checks.open_unit_interval("stop", stop)
    return -stop * math.log(stop) / (1 - stop) - stop
