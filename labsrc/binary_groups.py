"""Groups whose rewards are 0 or 1, as a verifier gives them: what G of them show, exactly (chapter 3).

Members are independent, each right with probability p, so a group is told by its number of right members. A group is
mixed if it holds both kinds; only a mixed group has a policy gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labsrc import checks


def wasted_share(p: Any, *, group_size: int) -> Tensor:
    """P(all rewards equal) = p^G + (1 − p)^G: the share of groups without a policy gradient.

    p: any shape, probabilities; group_size ≥ 2. Returns that shape. Raises ValueError for anything else.

    >>> wasted_share([0.1, 0.5], group_size=8)
    tensor([0.4305, 0.0078], dtype=torch.float64)
    """
    p = checks.finite("p", p)
    if ((p < 0) | (p > 1)).any():
        raise ValueError(f"p must be probabilities in [0, 1]; got values from {p.min().item()} to {p.max().item()}")
    group_size = checks.integer_at_least("group_size", group_size, 2)
    return p**group_size + (1 - p) ** group_size


@dataclass(frozen=True)
class MixedGroups:
    """Averages over the mixed groups alone.

    share: of groups that are mixed; mean_reward: E[mean(r) | mixed], to be compared with p; right, wrong:
    E[r_i − mean(r) | mixed] of a member with r_i = 1 or 0, to be compared with 1 − p and −p; gradient_factor: how many
    times ∇p the expected centred gradient is, given mixed; without the condition it is 1 − 1/G.
    """

    share: float
    mean_reward: float
    right: float
    wrong: float
    gradient_factor: float


def mixed_groups(p: float, *, group_size: int) -> MixedGroups:
    """Visit every mixed group of G rewards, gathered by their number of right members, and average.

    p strictly between 0 and 1; group_size ≥ 2. Raises ValueError for anything else.
    Source: the bias given a mixed group, arXiv 2601.08521.
    """
    p, size = checks.open_unit_interval("p", p), checks.integer_at_least("group_size", group_size, 2)
    weights = {k: math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(1, size)}
    share = math.fsum(weights.values())

    def average(value):
        return math.fsum(weight * value(k / size) for k, weight in weights.items()) / share

    # A member is right with probability k/G in a group with k right ones, and then has the advantage 1 − k/G.
    is_right, gain = average(lambda mean: mean), average(lambda mean: mean * (1 - mean))
    # E[A·∇log π(a)] needs E[∇log π | right] = ∇p/p and E[∇log π | wrong] = −∇p/(1 − p).
    return MixedGroups(
        share=share,
        mean_reward=is_right,
        right=gain / is_right,
        wrong=-gain / (1 - is_right),
        gradient_factor=gain / (p * (1 - p)),
    )
