"""Importance weights for completions that another program sampled than the one that trains (chapter 6).

An inference engine computes the same network in another precision, in another order, sometimes with other settings of
the sampler, so its log-probabilities differ a little from the trainer's. `logp` is the trainer's policy at the time of
sampling, `logp_engine` the engine's, both (B, T) in nats; mask (B, T), True for the tokens that count. The weights are
constants: a loss per token is multiplied by them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks, masking

LEVELS = ("token", "sequence")
MODES = ("truncate", "mask")


def correction(
    logp: Any,
    logp_engine: Any,
    mask: Any,
    *,
    level: str = "token",
    mode: str = "truncate",
    low: float | None = None,
    high: float | None = 2.0,
) -> Tensor:
    """π/μ of each token, or of each whole sequence, held within [low, high] or set to zero outside.

    level "token" gives (B, T), "sequence" the product over the valid tokens, (B, 1). mode "truncate" moves a ratio to
    the nearer bound, "mask" drops it: weight 0. low, high: absolute ratios, None for no bound; low < high, both > 0.
    Masked tokens get 1. Returns constants. Raises ValueError for shapes that do not fit, a non-finite value at a valid
    token, an overflow, or an option out of range. Source: truncation, Ionides 2008; masking, IcePop in
    arXiv 2510.18855; the four combinations, TRL 1.16.0.
    """
    checks.one_of("level", level, LEVELS)
    checks.one_of("mode", mode, MODES)
    low, high = _bounds(low, high)
    ratio = log_mismatch(logp, logp_engine, mask, level=level).exp()
    if mode == "truncate":
        return ratio.clamp(low, high)
    return torch.where((ratio < low) | (ratio > high), 0.0, ratio)


def log_mismatch(logp: Any, logp_engine: Any, mask: Any, *, level: str = "token") -> Tensor:
    """log π − log μ of each token, (B, T), zero where masked, or summed over each sequence, (B, 1): nats.

    Arguments and refusals as `correction`. Its mean over tokens is −KL(μ‖π) per token, as the samples are the engine's.
    """
    logp = checks.float_tensor("logp", logp).detach()
    mask = masking.as_mask(mask, like=logp)
    difference = masking.keep_valid("logp", logp, mask) - masking.keep_valid("logp_engine", logp_engine, mask).detach()
    if level == "sequence":
        difference = difference.sum(-1, keepdim=True)
    return checks.exponent("logp - logp_engine", difference)


def _bounds(low: float | None, high: float | None) -> tuple[float, float]:
    low = 0.0 if low is None else checks.positive("low", low)
    high = float("inf") if high is None else checks.positive("high", high)
    if low >= high:
        raise ValueError(f"low must be less than high = {high!r}; got {low!r}")
    return low, high
