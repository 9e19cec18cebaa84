"""Labelled pairs over the K completions of one prompt, and when they settle a policy (chapter 2).

A table of pairs is a (…, K, K) tensor: entry [a, b] is the weight of "a was chosen over b", a probability or a count.
Its diagonal is 0, and at least one entry is positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labsrc import checks
from labsrc.preference import preference_log_prob

_MOST_KINDS = 16  # kinds of labels; every subset of them is visited


def pairs_table(name: str, value: Any) -> Tensor:
    """`value` as a table of pairs: (…, K, K), non-negative, nothing on the diagonal, something off it."""
    table = checks.finite(name, value)
    if table.dim() < 2 or table.shape[-1] != table.shape[-2]:
        raise ValueError(f"{name} must be (K, K), chosen by rejected; got shape {tuple(table.shape)}")
    if (table < 0).any():
        raise ValueError(f"{name} must be non-negative; got {table.min().item():g}")
    if table.diagonal(dim1=-2, dim2=-1).any():
        raise ValueError(f"{name} must be 0 on the diagonal: no completion is chosen over itself; got {table.tolist()}")
    if (table.sum((-2, -1)) == 0).any():
        raise ValueError(f"{name} must hold at least one pair; got a table of zeros")
    return table


def bradley_terry_pairs(rewards: Any, *, asked: Mapping[tuple[int, int], float] | None = None) -> Tensor:
    """W[a, b] = m_ab·σ(r_a − r_b): all labels there will ever be, as shares, when pair {a, b} is asked with share m_ab.

    rewards: (K,), K ≥ 2. asked: pair of action indices to a weight > 0, each pair once, in either order; by default all
    pairs alike. Weights are divided by their sum. Returns (K, K), summing to 1. Raises ValueError for anything else.
    Source: Bradley & Terry 1952; DPO arXiv 2305.18290, eq. 1.

    >>> bradley_terry_pairs([0.0, 0.0]).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    rewards = checks.finite("rewards", rewards)
    if rewards.dim() != 1 or len(rewards) < 2:
        raise ValueError(f"rewards must be (K,) with K of at least 2; got shape {tuple(rewards.shape)}")
    actions = len(rewards)
    if asked is None:
        asked = {(a, b): 1.0 for a in range(actions) for b in range(a)}
    if not asked:
        raise ValueError(f"asked must name at least one pair; got {asked!r}")
    share = torch.zeros(actions, actions, dtype=rewards.dtype)
    for pair, weight in asked.items():
        a, b = _pair("asked", pair, actions)
        if share[a, b] > 0:
            raise ValueError(f"asked must name each pair once; got {{{a}, {b}}} in both orders")
        share[a, b] = share[b, a] = checks.positive(f"asked[{pair}]", weight)
    share = share * (2 / share.sum())
    return share * preference_log_prob(*torch.broadcast_tensors(rewards[:, None], rewards[None, :])).exp()


def count_pairs(labels: Sequence[tuple[int, int]], *, actions: int) -> Tensor:
    """The table of counts of a list of (chosen, rejected) action indices.

    Returns (K, K) in float64, K = actions ≥ 2. Raises ValueError for an empty list, an index that is no action, or a
    completion paired with itself.

    >>> count_pairs([(0, 1), (0, 1), (1, 0)], actions=2).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    table = torch.zeros((checks.integer_at_least("actions", actions, 2),) * 2, dtype=torch.float64)
    for label in labels:
        table[_pair("labels", label, actions)] += 1
    return pairs_table("labels", table)


def sample_pairs(population: Any, count: int, *, generator: torch.Generator, sets: int = 1) -> Tensor:
    """`sets` data sets of `count` labels each, drawn independently from a population table: (sets, K, K) counts.

    population: (K, K). Raises ValueError for anything else, and for less than one label or set.
    """
    population = _one_table("population", population)
    count, sets = checks.integer_at_least("count", count, 1), checks.integer_at_least("sets", sets, 1)
    drawn = torch.multinomial(population.flatten(), sets * count, replacement=True, generator=generator)
    tables = torch.zeros(sets, population.numel(), dtype=population.dtype)
    tables.scatter_add_(1, drawn.reshape(sets, count), torch.ones(sets, count, dtype=population.dtype))
    return tables.reshape(sets, *population.shape)


def settles(pairs: Any) -> Tensor:
    """Whether DPO on a table of logits has exactly one minimising policy: every action reaches every other.

    pairs: (…, K, K). a reaches b when there is a chain a ≻ c ≻ … ≻ b of labels that occur. Returns (…), bool. Raises
    ValueError unless pairs is a table of pairs. Source: the condition for Bradley–Terry estimates, Ford 1957.

    >>> settles([[0, 3], [1, 0]]).item(), settles([[0, 4], [0, 0]]).item()
    (True, False)
    """
    return _reaches_all(pairs_table("pairs", pairs) > 0)


def chance_of_settling(population: Any, count: int) -> float:
    """P(`count` labels drawn from the population settle a policy), exactly.

    Whether they do depends only on which kinds of labels occur at all. A set S of kinds occurs and no other with
    probability Σ_{T ⊆ S} (−1)^|S∖T|·w(T)^count, w(T) the share of the kinds in T. population: (K, K), at most 16
    kinds. Raises ValueError for anything else, and for less than one label.
    """
    population = _one_table("population", population)
    count = checks.integer_at_least("count", count, 1)
    kinds = population.nonzero()
    if len(kinds) > _MOST_KINDS:
        raise ValueError(f"population must have at most {_MOST_KINDS} kinds of labels; got {len(kinds)}")
    shares = population[tuple(kinds.T)].double() / population.double().sum()
    chosen = torch.arange(2 ** len(kinds))[:, None] >> torch.arange(len(kinds)) & 1 == 1
    exactly = (chosen * shares).sum(1).clamp(max=1).pow(count)
    # Möbius transform, one kind at a time: take away what happens without it.
    for kind in range(len(kinds)):
        exactly = exactly - torch.where(chosen[:, kind], exactly[torch.arange(len(chosen)) & ~(1 << kind)], 0.0)
    occurs = torch.zeros(len(chosen), *population.shape, dtype=torch.bool)
    occurs[:, kinds[:, 0], kinds[:, 1]] = chosen
    return exactly[_reaches_all(occurs)].sum().item()


def _reaches_all(occurs: Tensor) -> Tensor:
    # Warshall: chains through action 0, then through 0 and 1, …
    reach = occurs | torch.eye(occurs.shape[-1], dtype=torch.bool)
    for middle in range(occurs.shape[-1]):
        reach = reach | (reach[..., :, middle, None] & reach[..., middle, None, :])
    return reach.flatten(-2).all(-1)


def _one_table(name: str, value: Any) -> Tensor:
    table = pairs_table(name, value)
    if table.dim() != 2:
        raise ValueError(f"{name} must be one table (K, K); got shape {tuple(table.shape)}")
    return table


def _pair(name: str, pair: Any, actions: int) -> tuple[int, int]:
    indices = range(actions)
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(index in indices for index in pair)):
        raise ValueError(f"{name} must hold pairs of action indices from 0 to {actions - 1}; got {pair!r}")
    if pair[0] == pair[1]:
        raise ValueError(f"{name} must hold pairs of different actions; got {pair!r}")
    return int(pair[0]), int(pair[1])
