"""Token masks: True counts. Padding is replaced before any exponential, so nothing in it can leak."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks


def as_mask(mask: Any, *, like: Tensor) -> Tensor:
    """`mask` as a boolean tensor of the shape of `like`, with at least one True in every row.

    mask: (B, T) of booleans or of zeros and ones. Raises ValueError for other values, another shape, or a
    sequence without a single valid token: its mean would be 0/0.
    """
    tensor = mask if isinstance(mask, Tensor) else checks.float_tensor("mask", mask)
    if tuple(tensor.shape) != tuple(like.shape):
        raise ValueError(f"mask must have the shape {tuple(like.shape)} of the values; got {tuple(tensor.shape)}")
    if tensor.dtype != torch.bool:
        if not ((tensor == 0) | (tensor == 1)).all():
            raise ValueError(f"mask must hold only True/False or 1/0; got values in {tensor.unique().tolist()[:5]}")
        tensor = tensor == 1
    tensor = tensor.to(like.device)
    empty = ~tensor.any(-1)
    if empty.any():
        index = tuple(empty.nonzero()[0].tolist())
        raise ValueError(f"mask must keep at least one token in every sequence; sequence {index} has none")
    return tensor


def keep_valid(name: str, values: Any, mask: Tensor) -> Tensor:
    """`values` with zeros where `mask` is False; the gradient there is exactly zero too.

    values: (B, T); mask: (B, T) boolean. Raises ValueError for another shape or a non-finite value at a valid
    position. `where` and not a product, because NaN·0 is NaN.
    """
    tensor = checks.float_tensor(name, values)
    checks.same_shape(**{name: tensor, "mask": mask})
    tensor = checks.finite(name, tensor, where=mask)
    return torch.where(mask, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device))


def sum_over_tokens(values: Any, mask: Any) -> Tensor:
    """Σ_t values over the valid tokens of each sequence: a sequence's log-probability, given its tokens'.

    values: (B, T) per token; mask: (B, T), True counts. Returns (B,), in the unit of `values`. The gradient
    flows into `values`. Raises ValueError as `as_mask` and `keep_valid` do.
    """
    values = checks.float_tensor("values", values)
    return keep_valid("values", values, as_mask(mask, like=values)).sum(-1)


def completion_mask(tokens: Any, *, eos_token: int) -> Tensor:
    """True up to and including the first EOS token of each row, False for the padding after it.

    tokens: (B, T) token ids. Returns (B, T) boolean. The EOS token itself counts: the policy chose it, and
    without its log-probability no gradient ever teaches it to stop. Raises ValueError for tokens that are not
    a (B, T) array of whole numbers, or an eos_token that is not a token id.
    """
    eos_token = checks.integer_at_least("eos_token", eos_token, 0)
    try:
        tokens = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"tokens must be a (B, T) array of token ids; got {tokens!r}") from error
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.numel() == 0:
        raise ValueError(
            f"tokens must be a (B, T) array of token ids; got {tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    is_eos = (tokens == eos_token).long()
    return is_eos.cumsum(-1) - is_eos == 0
