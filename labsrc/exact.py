"""Expectations without sampling: every action, every group, every sequence is visited once.

An estimator is judged against these. Probabilities are multiplied in the log domain; an enumeration above
`MAX_OUTCOMES` outcomes is refused with its size.

An autoregressive table over V symbols and T steps is a list of T tensors of logits: `table[t]` has shape (V,)*(t+1),
its last axis the next symbol, the axes before it the prefix. Sequences come in lexicographic order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks

MAX_OUTCOMES = 2**20


def expected_value(logits: Any, values: Any) -> Tensor:
    """E_p[f] = Σ_a p(a)·f(a) with p = softmax(logits).

    logits, values: (…, K). Returns (…), in units of values; the gradient flows into both. Raises ValueError for
    non-finite entries or shapes that do not fit.
    """
    logits, values = _same_actions(logits=logits, values=values)
    return (torch.softmax(logits, -1) * values).sum(-1)


def value_gradient(logits: Any, rewards: Any) -> Tensor:
    """∇J with respect to the logits: p(a)·(r(a) − J), J = E_p[r].

    logits, rewards: (…, K). Returns (…, K). Raises ValueError as `expected_value` does.
    Source: the policy-gradient theorem, Sutton et al. 2000, for one state.
    """
    logits, rewards = _same_actions(logits=logits, rewards=rewards)
    return torch.softmax(logits, -1) * (rewards - expected_value(logits, rewards).unsqueeze(-1))


def kl_gradient(logits: Any, logits_ref: Any) -> Tensor:
    """∇KL(p‖q) with respect to the logits of p: p(a)·(log(p(a)/q(a)) − KL).

    logits, logits_ref: (…, K). Returns (…, K), in nats. Raises ValueError as `expected_value` does.
    """
    logits, logits_ref = _same_actions(logits=logits, logits_ref=logits_ref)
    # The log-ratio depends on the logits too, but that part of the gradient is Σ_a p(a)·∇log p(a) = 0.
    return value_gradient(logits, torch.log_softmax(logits, -1) - torch.log_softmax(logits_ref, -1))


@dataclass(frozen=True)
class GradientMoments:
    """Mean (K,) and covariance (K, K) of a gradient estimator, over everything it may sample."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, weights: Tensor, estimates: Tensor) -> GradientMoments:
        """Moments of an estimator that gives row n of `estimates` (N, K) with probability weights[n]."""
        mean = weights @ estimates
        deviation = estimates - mean
        return cls(mean=mean, covariance=(deviation * weights[:, None]).T @ deviation)

    @property
    def variance(self) -> float:
        """E‖ĝ − E[ĝ]‖², the trace of the covariance."""
        return self.covariance.trace().item()


def groups(actions: int, group_size: int) -> Tensor:
    """All K^G groups of G actions, one a row: (K^G, G) action indices, in lexicographic order.

    Raises ValueError for fewer than one action or member, and above `MAX_OUTCOMES` groups.
    """
    actions = checks.integer_at_least("actions", actions, 1)
    group_size = checks.integer_at_least("group_size", group_size, 1)
    _affordable("groups", actions, group_size)
    return torch.cartesian_prod(*[torch.arange(actions)] * group_size).reshape(-1, group_size)


def group_gradient(logits: Any, rewards: Any, advantage_fn: Callable[[Tensor], Tensor], *, group_size: int) -> Tensor:
    """E[(1/G)·Σ_i A_i·∇log p(a_i)]: the gradient the group estimator has on average, by visiting all K^G groups.

    logits, rewards: (K,); advantage_fn: maps rewards (N, G) to advantages (N, G), each group by itself, for instance
    `advantages.standardized` (not `batch_standardized`, which would take all K^G groups for one batch). Returns (K,),
    with respect to the logits; numbers, no gradient flows through them. Raises ValueError as `groups` does, for a
    group of one, and for an advantage_fn that changes the shape or returns a non-finite number.

    >>> from labsrc import advantages
    >>> group_gradient([0.0, 0.0], [0.0, 1.0], advantages.leave_one_out, group_size=3)
    tensor([-0.2500,  0.2500], dtype=torch.float64)
    """
    return group_gradient_moments(logits, rewards, advantage_fn, group_size=group_size).mean


def group_gradient_moments(
    logits: Any, rewards: Any, advantage_fn: Callable[[Tensor], Tensor], *, group_size: int
) -> GradientMoments:
    """Mean and covariance of the group estimator (1/G)·Σ_i A_i·∇log p(a_i), by visiting all K^G groups.

    Arguments and refusals as `group_gradient`.
    """
    logits, rewards = _same_actions(logits=logits, rewards=rewards)
    for name, tensor in (("logits", logits), ("rewards", rewards)):
        if tensor.dim() != 1:
            raise ValueError(f"{name} must be (K,), one policy and its rewards; got shape {tuple(tensor.shape)}")
    members = groups(len(logits), checks.integer_at_least("group_size", group_size, 2))
    logp = torch.log_softmax(logits.detach(), -1)
    advantages = checks.finite("advantage_fn(rewards)", advantage_fn(rewards.detach()[members]))
    if advantages.shape != members.shape:
        raise ValueError(f"advantage_fn must keep the shape {tuple(members.shape)}; got {tuple(advantages.shape)}")
    # Σ_i A_i·(onehot(a_i) − p): a scatter of the advantages onto their actions, less p times their sum.
    onto_actions = advantages.new_zeros(len(members), len(logits)).scatter_add(1, members, advantages)
    estimates = (onto_actions - advantages.sum(1, keepdim=True) * logp.exp()) / group_size
    return GradientMoments.of(logp[members].sum(1).exp().to(estimates.dtype), estimates)


def standardized_objective_weight(p: Any, *, group_size: int, ddof: int = 0) -> Tensor:
    """w_G(p) = E_{K~Bin(G−1,p)}[√((G−1−K)/(K+1)) + √(K/(G−K))], times √((G−1)/G) when ddof = 1.

    For a 0/1 reward with success probability p, the expected gradient of standardised group advantages (std_eps = 0)
    is w_G(p)·∇p. p: any shape, probabilities; group_size ≥ 2. Returns that shape, in float64 unless p is a float
    tensor; its gradient in p exists strictly between 0 and 1. As G grows w_G(p) tends to 1/√(p(1 − p)), the slope of
    2·arcsin√p. Raises ValueError for anything else.
    Source: the limit, arXiv 2510.13651; the finite sum is enumerated in the tests.
    """
    p = checks.finite("p", p)
    if ((p < 0) | (p > 1)).any():
        raise ValueError(f"p must be probabilities in [0, 1]; got values from {p.min().item()} to {p.max().item()}")
    group_size = checks.integer_at_least("group_size", group_size, 2)
    checks.one_of("ddof", ddof, (0, 1))
    # In float64 whatever p is: a difference of log-factorials of large G keeps few digits of a shorter type.
    p, dtype = p.double(), p.dtype
    others = torch.arange(group_size, dtype=torch.float64)  # K, the successes among the G − 1 other members
    trials = torch.tensor(group_size - 1, dtype=torch.float64)
    log_choose = torch.lgamma(trials + 1) - torch.lgamma(others + 1) - torch.lgamma(trials - others + 1)
    log_weight = log_choose + torch.xlogy(others, p[..., None]) + torch.xlogy(trials - others, 1 - p[..., None])
    advantage_gap = ((trials - others) / (others + 1)).sqrt() + (others / (group_size - others)).sqrt()
    return (log_weight.exp() * advantage_gap).sum(-1).to(dtype) * math.sqrt((group_size - ddof) / group_size)


def sequences(vocabulary: int, length: int) -> Tensor:
    """All V^T sequences of T symbols, one a row: (V^T, T) token ids, in lexicographic order.

    Raises ValueError for less than one symbol or step, and above `MAX_OUTCOMES` sequences.
    """
    vocabulary = checks.integer_at_least("vocabulary", vocabulary, 1)
    length = checks.integer_at_least("length", length, 1)
    _affordable("sequences", vocabulary, length)
    return torch.cartesian_prod(*[torch.arange(vocabulary)] * length).reshape(-1, length)


def sequence_token_logp(table: Sequence[Any]) -> Tensor:
    """log π(y_t | y_<t) for every token of every sequence of an autoregressive table.

    table: T tensors of logits, see the module's text. Returns (V^T, T), in nats; the gradient flows into every tensor
    of the table. Raises ValueError for shapes that are no such table, non-finite logits, or too many sequences.
    """
    table = _autoregressive(table)
    vocabulary, length = table[0].shape[-1], len(table)
    columns = [
        torch.log_softmax(logits, -1).flatten().repeat_interleave(vocabulary ** (length - 1 - step))
        for step, logits in enumerate(table)
    ]
    return torch.stack(columns, -1)


def sequence_expected_value(table: Sequence[Any], values: Any) -> Tensor:
    """E_π[f(y)] = Σ_y π(y)·f(y) over all sequences.

    table: as `sequence_token_logp`; values: (V^T,), one a sequence in the order of `sequences`. Returns a scalar;
    the gradient flows into the table and the values. Raises ValueError as `sequence_token_logp` does, and for a wrong
    number of values.
    """
    seq_logp, values = sequence_token_logp(table).sum(-1), checks.finite("values", values)
    if values.shape != seq_logp.shape:
        raise ValueError(f"values must be ({len(seq_logp)},), one a sequence; got shape {tuple(values.shape)}")
    return (seq_logp.exp() * values).sum()


def sequence_kl(table: Sequence[Any], table_ref: Sequence[Any]) -> Tensor:
    """KL(π‖π_ref) of whole sequences, in nats: Σ_y π(y)·(log π(y) − log π_ref(y)).

    table, table_ref: as `sequence_token_logp`, of the same shapes. Returns a scalar; the gradient flows into both.
    Raises ValueError as `sequence_token_logp` does.
    """
    token_logp, token_logp_ref = sequence_token_logp(table), sequence_token_logp(table_ref)
    # Compared before the sum over tokens: 4 symbols × 1 step and 2 symbols × 2 steps are both 4 sequences.
    if token_logp.shape != token_logp_ref.shape:
        wanted, got = tuple(token_logp.shape), tuple(token_logp_ref.shape)
        raise ValueError(f"table_ref must list the same (sequences, tokens) as table, {wanted}; got {got}")
    seq_logp, seq_logp_ref = token_logp.sum(-1), token_logp_ref.sum(-1)
    return (seq_logp.exp() * (seq_logp - seq_logp_ref)).sum()


@torch.enable_grad()
def sequence_value_gradient(table: Sequence[Any], values: Any) -> list[Tensor]:
    """Σ_y π(y)·f(y)·∇log π(y) for each tensor of the table: ∇E_π[f] when f does not depend on the table.

    Arguments and refusals as `sequence_expected_value`. Returns T tensors of the table's shapes.
    """
    leaves = [logits.detach().clone().requires_grad_() for logits in _autoregressive(table)]
    values = checks.finite("values", values).detach()
    return list(torch.autograd.grad(sequence_expected_value(leaves, values), leaves))


def _same_actions(**arguments: Any) -> list[Tensor]:
    tensors = {name: checks.finite(name, value) for name, value in arguments.items()}
    counts = {name: tensor.shape[-1] if tensor.dim() else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise ValueError(f"{' and '.join(counts)} must list the same actions on the last axis; got {counts}")
    checks.broadcastable(**tensors)
    return list(tensors.values())


def _affordable(what: str, choices: int, places: int) -> None:
    # In logarithms: the power itself may have more digits than can be printed, or held.
    digits = places * math.log10(choices)
    if digits > math.log10(MAX_OUTCOMES) + 1e-9:
        size = f"= {choices**places}" if digits < 18 else f"≈ 10^{digits:.0f}"
        raise ValueError(
            f"an enumeration must visit at most {MAX_OUTCOMES} {what}; "
            f"got {choices}^{places} {size}: take a smaller case or sample"
        )


def _autoregressive(table: Sequence[Any]) -> list[Tensor]:
    tensors = [checks.finite(f"table[{step}]", logits) for step, logits in enumerate(table)]
    if not tensors:
        raise ValueError("table must hold the logits of at least one step; got an empty list")
    if tensors[0].dim() != 1:
        raise ValueError(f"table[0] must have shape (V,), one logit a symbol; got {tuple(tensors[0].shape)}")
    vocabulary = len(tensors[0])
    for step, logits in enumerate(tensors):
        if tuple(logits.shape) != (vocabulary,) * (step + 1):
            wanted = (vocabulary,) * (step + 1)
            raise ValueError(f"table[{step}] must have shape {wanted}; got {tuple(logits.shape)}")
    _affordable("sequences", vocabulary, len(tensors))
    return tensors
