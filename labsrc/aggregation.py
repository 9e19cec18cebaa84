"""From one number per token to one number per batch (chapter 6). Different objectives, not spellings of one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from labsrc import checks, masking


def mean_of_sequence_means(values: Any, mask: Any) -> Tensor:
    """Mean over sequences of each one's token mean: every *sequence* weighs the same.

    values: (B, T) per token, carries the gradient; mask: (B, T), True counts. Returns a scalar in the unit of values.
    Raises ValueError for an empty row or a non-finite value at a valid token.
    Source: GRPO, DeepSeekMath arXiv 2402.03300, eq. 3.
    """
    values, mask = _valid(values, mask)
    return (values.sum(-1) / mask.sum(-1)).mean()


def mean_of_sequence_sums(values: Any, mask: Any) -> Tensor:
    """Mean over sequences of each one's token sum: every token weighs 1/B, so a long sequence weighs more.

    As `mean_of_sequence_means`. Source: LUSPO, as in TRL 1.16.0.
    """
    values, _ = _valid(values, mask)
    return values.sum(-1).mean()


def mean_over_tokens(values: Any, mask: Any, *, token_count: int | None = None) -> Tensor:
    """Sum over all valid tokens divided by their number: every *token* weighs the same.

    As `mean_of_sequence_means`. token_count is the number of valid tokens of the whole generation batch when
    (values, mask) is one slice of it: the slices then add up to the batch's mean. Default: the tokens of this mask.
    Source: DAPO arXiv 2503.14476, eq. 8.
    """
    values, mask = _valid(values, mask)
    here = int(mask.sum())
    return values.sum() / checks.integer_at_least("token_count", here if token_count is None else token_count, here)


def sum_over_fixed_length(values: Any, mask: Any, *, max_length: int) -> Tensor:
    """Sum over all valid tokens divided by B·max_length: a constant, so no length is in the gradient's scale.

    As `mean_of_sequence_means`; max_length ≥ T is the longest completion that generation allows.
    Source: Dr. GRPO arXiv 2503.20783.
    """
    values, _ = _valid(values, mask)
    sequences, longest = values.shape
    return values.sum() / (sequences * checks.integer_at_least("max_length", max_length, longest))


def _valid(values: Any, mask: Any) -> tuple[Tensor, Tensor]:
    values = checks.float_tensor("values", values)
    if values.dim() != 2:
        raise ValueError(f"values must be (B, T), one number per token; got shape {tuple(values.shape)}")
    mask = masking.as_mask(mask, like=values)
    return masking.keep_valid("values", values, mask), mask
