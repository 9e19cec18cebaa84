"""A price for answers that run into the length limit (chapter 6)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks


def soft_overlong_penalty(lengths: Any, *, max_length: int, cache: int) -> Tensor:
    """0 up to max_length − cache tokens, then falling in a straight line to −1 at max_length, and −1 beyond.

    lengths: tokens of each completion, any shape, ≥ 0; 1 ≤ cache ≤ max_length. Returns rewards of that shape, to be
    added. Raises ValueError for anything else. Source: DAPO arXiv 2503.14476, eq. 13.
    """
    lengths = checks.finite("lengths", lengths)
    if (lengths < 0).any():
        raise ValueError(f"lengths must be at least 0; got {lengths.min().item():g}")
    cache = checks.integer_at_least("cache", cache, 1)
    if cache > checks.integer_at_least("max_length", max_length, 1):
        raise ValueError(f"cache must be at most max_length = {max_length}; got {cache!r}")
    free = max_length - cache
    return torch.clamp((free - lengths) / cache, -1.0, 0.0)
