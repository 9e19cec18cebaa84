"""What sampling from one policy and training another does to the gradient, enumerated (chapter 6).

The completions come from an engine's policy μ, the gradient is taken of the trainer's π. `weights` maps (logp,
logp_engine, mask), each (N, T), to what each token's term is multiplied by, (N, T) or (N, 1), as
`engine_mismatch.correction` does with its options fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, exact

Weights = Callable[[Tensor, Tensor, Tensor], Tensor]


def uncorrected(logp: Tensor, logp_engine: Tensor, mask: Tensor) -> Tensor:
    """Weight 1 for every token: as if the engine's samples were the trainer's."""
    return torch.ones_like(logp)


def true_gradient(table: Sequence[Any], values: Any) -> Tensor:
    """∇E_π[f] of every logit of the table, flat: where an estimate should point on average."""
    return torch.cat([part.flatten() for part in exact.sequence_value_gradient(table, values)])


@torch.enable_grad()
def gradient_moments(
    table: Sequence[Any], table_engine: Sequence[Any], values: Any, weights: Weights
) -> exact.GradientMoments:
    """Mean and covariance of f(y)·Σ_t w_t·∇log π(y_t), y drawn from the engine, by visiting every sequence.

    table, table_engine: autoregressive tables as in `labsrc.exact`, of one shape; values: (V^T,), the f of each
    sequence, for instance its advantage. The mean is flat, in the order of `true_gradient`. Raises ValueError as
    `exact.sequence_expected_value` does, and for tables that do not list the same sequences.
    """
    leaves = [checks.finite("table", logits).detach().clone().requires_grad_() for logits in table]
    logp = exact.sequence_token_logp(leaves)
    logp_engine = exact.sequence_token_logp(table_engine).detach()
    checks.same_shape(table=logp, table_engine=logp_engine)
    values = checks.finite("values", values)
    if values.shape != logp.shape[:1]:
        raise ValueError(f"values must be ({len(logp)},), one a sequence; got shape {tuple(values.shape)}")
    weight = weights(logp.detach(), logp_engine, torch.ones_like(logp, dtype=torch.bool))
    rows = [torch.autograd.grad(term, leaves, retain_graph=True) for term in values * (weight * logp).sum(-1)]
    estimates = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    return exact.GradientMoments.of(logp_engine.sum(-1).exp(), estimates)
