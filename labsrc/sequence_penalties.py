"""KL penalties on whole sequences, token by token or at once, and the gradient of each, enumerated (chapter 4).

A penalty takes (logp, logp_old, logp_ref), each (N, T) log-probabilities (nats) of N sequences of T tokens, and
returns one term of the loss a sequence, (N,), to be minimised; `logp` alone carries the gradient. The target is
∇KL(π‖π_ref) of *whole sequences*, which includes what an early token does to the KL of the tokens after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, exact, kl

Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]


def token_k2(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t k2_t: each token's k2 as a loss."""
    return kl.kl_k2(logp, logp_ref).sum(-1)


def token_k3(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t k3_t: each token's k3 as a loss, the penalty of GRPO. Source: DeepSeekMath arXiv 2402.03300, eq. 4."""
    return kl.kl_k3(logp, logp_ref).sum(-1)


def own_k1_in_reward(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t stop(k1_t)·log π_t: each token pays for its own k1 and for nothing after it."""
    return (kl.kl_k1(logp, logp_ref).detach() * logp).sum(-1)


def token_ratio_k3(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t ρ_t·k3_t with the ratio of the token alone, in the graph. Source: DeepSeek-V3.2 arXiv 2512.02556."""
    return kl.ratio_weighted(kl.kl_k3(logp, logp_ref), logp - logp_old).sum(-1)


def sequence_k2(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """k2 of the whole sequence, ½(Σ_t k1_t)², as a loss."""
    return kl.kl_k2(logp.sum(-1), logp_ref.sum(-1))


def k1_to_go_in_reward(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t stop(Σ_{s≥t} k1_s)·log π_t: each token pays for its own k1 and for all that follow."""
    to_go = kl.kl_k1(logp, logp_ref).detach().flip(-1).cumsum(-1).flip(-1)
    return (to_go * logp).sum(-1)


def prefix_ratio_k3(logp: Tensor, logp_old: Tensor, logp_ref: Tensor) -> Tensor:
    """Σ_t (Π_{s≤t} ρ_s)·k3_t: the ratio of the prefix up to and with the token, in the graph."""
    return kl.ratio_weighted(kl.kl_k3(logp, logp_ref), (logp - logp_old).cumsum(-1)).sum(-1)


PENALTIES: dict[str, Penalty] = {
    "k2 by token": token_k2,
    "own k1 in the reward": own_k1_in_reward,
    "token ρ · k3": token_ratio_k3,
    "k3 by token": token_k3,
    "k2 of the sequence": sequence_k2,
    "k1 to go in the reward": k1_to_go_in_reward,
    "prefix ρ · k3": prefix_ratio_k3,
}


@torch.enable_grad()
def penalty_gradient(
    penalty: Penalty, table: Sequence[Any], table_ref: Sequence[Any], *, table_old: Sequence[Any] | None = None
) -> list[Tensor]:
    """Gradient of E[penalty] for each tensor of the table, the samples held fixed, by visiting every sequence.

    table, table_ref, table_old: autoregressive tables as in `labsrc.exact`. Sequences are drawn from table_old, by
    default from the table itself (ρ = 1). Returns T tensors of the table's shapes, in nats. Raises ValueError for
    tables that do not list the same sequences.
    """
    leaves = [checks.finite("table", logits).detach().clone().requires_grad_() for logits in table]
    logp = exact.sequence_token_logp(leaves)
    logp_old = logp.detach() if table_old is None else exact.sequence_token_logp(table_old).detach()
    logp_ref = exact.sequence_token_logp(table_ref).detach()
    checks.same_shape(table=logp, table_old=logp_old, table_ref=logp_ref)
    mean = (logp_old.sum(-1).exp() * penalty(logp, logp_old, logp_ref)).sum()
    return list(torch.autograd.grad(mean, leaves))


@torch.enable_grad()
def kl_gradient(table: Sequence[Any], table_ref: Sequence[Any]) -> list[Tensor]:
    """∇KL(π‖π_ref) of whole sequences for each tensor of the table: the derivative of `exact.sequence_kl`.

    Arguments and refusals as `exact.sequence_kl`. Returns T tensors of the table's shapes, in nats.
    """
    leaves = [checks.finite("table", logits).detach().clone().requires_grad_() for logits in table]
    return list(torch.autograd.grad(exact.sequence_kl(leaves, table_ref), leaves))


def shortfall(
    penalty: Penalty, table: Sequence[Any], table_ref: Sequence[Any], *, table_old: Sequence[Any] | None = None
) -> list[Tensor]:
    """∇KL(π‖π_ref) less `penalty_gradient`: what a penalty misses for each tensor of the table, 0 for an exact one.

    Arguments and refusals as `penalty_gradient`. Returns T tensors of the table's shapes, in nats.
    """
    found = penalty_gradient(penalty, table, table_ref, table_old=table_old)
    return [wanted - got for wanted, got in zip(kl_gradient(table, table_ref), found, strict=True)]
