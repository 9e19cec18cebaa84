"""Policy-gradient surrogates per token, *maximised*; their mean over tokens is the caller's (chapters 4 and 6).

`log_ratio` is logp − logp_old, in nats, and carries the gradient; advantages are constants. The clip radii say how far
from 1 the ratio ρ = exp(log_ratio) may move before the incentive to move further ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, masking


def reinforce_surrogate(logp: Any, advantages: Any) -> Tensor:
    """A·log π: its gradient is the score-function estimator, its value means nothing.

    logp: (B, T) log-probabilities under the current policy, carries the gradient; advantages: a shape that
    broadcasts to it. Returns (B, T). Raises ValueError for non-finite values or shapes that do not fit.
    Source: Williams 1992 (REINFORCE).
    """
    logp, advantages = _fitting("logp", checks.finite("logp", logp), advantages)
    return advantages * logp


def clipped_surrogate(log_ratio: Any, advantages: Any, *, clip_low: float, clip_high: float) -> Tensor:
    """min(ρA, clip(ρ, 1 − clip_low, 1 + clip_high)·A).

    log_ratio: (B, T) or any shape, carries the gradient; advantages: a shape that broadcasts to it. Returns the shape
    of log_ratio, in units of advantage. Only a ratio already past the edge in the direction its advantage asks for
    loses its gradient. clip_low and clip_high are radii in (0, 1): 0.2, not 1.2. Raises ValueError for anything
    else, and where ρ overflows. Source: PPO arXiv 1707.06347, eq. 7; two radii: DAPO arXiv 2503.14476, eq. 8.

    >>> clipped_surrogate([[0.5, -0.5]], [[1.0, 1.0]], clip_low=0.2, clip_high=0.2)
    tensor([[1.2000, 0.6065]], dtype=torch.float64)
    """
    log_ratio, advantages = _fitting("log_ratio", checks.exponent("log_ratio", log_ratio), advantages)
    low, high = _interval(clip_low, clip_high)
    ratio = log_ratio.exp()
    return torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)


def dual_clipped_surrogate(
    log_ratio: Any, advantages: Any, *, clip_low: float, clip_high: float, dual_clip: float = 3.0
) -> Tensor:
    """`clipped_surrogate`, and for A < 0 never below dual_clip·A: a floor under very large ratios.

    As `clipped_surrogate`; dual_clip > 1 + clip_high is the ratio at which a bad token stops pushing.
    Source: Ye et al. 2020, arXiv 1912.09729, eq. 5 (c = 3).
    """
    _interval(clip_low, clip_high)
    if checks.number("dual_clip", dual_clip) <= 1 + clip_high:
        raise ValueError(f"dual_clip must be greater than 1 + clip_high = {1 + clip_high:g}; got {dual_clip!r}")
    surrogate = clipped_surrogate(log_ratio, advantages, clip_low=clip_low, clip_high=clip_high)
    advantages = checks.finite("advantages", advantages)
    return torch.where(advantages < 0, torch.maximum(surrogate, dual_clip * advantages), surrogate)


def capped_weight_surrogate(logp: Any, log_ratio: Any, advantages: Any, *, clip_high: float) -> Tensor:
    """stop(min(ρ, clip_high))·A·log π: the ratio is a capped constant weight, so no token loses its gradient.

    logp, log_ratio: one shape; logp carries the gradient. clip_high > 0 is an absolute cap on ρ, not a radius: 0.2
    would hold every weight to at most 0.2. Otherwise as `clipped_surrogate`.
    Source: CISPO, MiniMax-M1 arXiv 2506.13585, eq. 4.
    """
    logp, log_ratio = checks.finite("logp", logp), checks.exponent("log_ratio", log_ratio)
    checks.same_shape(logp=logp, log_ratio=log_ratio)
    weight = log_ratio.detach().exp().clamp(max=checks.positive("clip_high", clip_high))
    return weight * reinforce_surrogate(logp, advantages)


def soft_gated_surrogate(
    log_ratio: Any, advantages: Any, *, temperature_positive: float = 1.0, temperature_negative: float = 1.05
) -> Tensor:
    """f(ρ)·A with f(ρ) = σ(τ(ρ − 1))·4/τ, τ by the sign of A: a smooth gate in the clip's place; f′(1) = 1.

    As `clipped_surrogate`; both temperatures > 0, the positive one for A > 0. Source: SAPO arXiv 2511.20347.
    """
    tau_positive = checks.positive("temperature_positive", temperature_positive)
    tau_negative = checks.positive("temperature_negative", temperature_negative)
    log_ratio, advantages = _fitting("log_ratio", checks.exponent("log_ratio", log_ratio), advantages)
    tau = torch.where(advantages > 0, *_constants(log_ratio, tau_positive, tau_negative))
    return torch.sigmoid(tau * (log_ratio.exp() - 1)) * 4 / tau * advantages


def gamma_weighted_surrogate(
    logp: Any,
    log_ratio: Any,
    advantages: Any,
    mask: Any,
    *,
    shape_positive: float = 2.0,
    rate_positive: float = 3.0,
    shape_negative: float = 3.0,
    rate_negative: float = 2.0,
) -> Tensor:
    """stop(φ(w))·A·log π with φ(w) = w^k·e^{λ(1−w)}, w the ratio of the *whole* sequence; φ(1) = 1.

    logp, log_ratio, mask: (B, T); logp carries the gradient. advantages broadcasts to (B, T); k (shape) and λ (rate)
    are chosen by its sign and must be > 0. Returns (B, T), zero at masked tokens. Raises ValueError as
    `clipped_surrogate`, and where w overflows. Source: VESPO, as in TRL 1.16.0 (which clamps log w to
    [log 1e-8, 20] where this function needs no clamp: φ underflows to zero on both sides).
    """
    names = ("shape_positive", "rate_positive", "shape_negative", "rate_negative")
    values = (shape_positive, rate_positive, shape_negative, rate_negative)
    k_pos, rate_pos, k_neg, rate_neg = (checks.positive(name, value) for name, value in zip(names, values, strict=True))
    log_ratio = checks.float_tensor("log_ratio", log_ratio)
    mask = masking.as_mask(mask, like=log_ratio)
    log_weight = masking.keep_valid("log_ratio", log_ratio, mask).detach().sum(-1, keepdim=True)
    log_weight = checks.exponent("log_ratio summed over a sequence", log_weight)
    logp, advantages = _fitting("logp", masking.keep_valid("logp", logp, mask), advantages)
    k = torch.where(advantages >= 0, *_constants(logp, k_pos, k_neg))
    rate = torch.where(advantages >= 0, *_constants(logp, rate_pos, rate_neg))
    weight = torch.exp(rate + k * log_weight - rate * log_weight.exp())
    return torch.where(mask, weight * reinforce_surrogate(logp, advantages), 0.0)


def sequence_log_ratio(log_ratio: Any, mask: Any) -> Tensor:
    """Mean of log_ratio over the valid tokens: the log of the *geometric mean* of the token ratios.

    log_ratio, mask: (B, T). Returns (B,), in nats per token; the gradient flows to every valid token. It is not the
    ratio of the whole sequence, which is the product (`masking.sum_over_tokens`): ratios [2, 2] give 2 here and 4
    there. Raises ValueError for an empty row or a non-finite valid value. Source: GSPO arXiv 2507.18071, eq. 7.
    """
    log_ratio = checks.float_tensor("log_ratio", log_ratio)
    mask = masking.as_mask(mask, like=log_ratio)
    return masking.keep_valid("log_ratio", log_ratio, mask).sum(-1) / mask.sum(-1)


@dataclass(frozen=True)
class ClipFraction:
    """Shares of valid tokens that the clip has taken out of the gradient, by the edge they are past."""

    low: float
    high: float

    @property
    def total(self) -> float:
        """Share past either edge."""
        return self.low + self.high


def clip_fraction(log_ratio: Any, advantages: Any, mask: Any, *, clip_low: float, clip_high: float) -> ClipFraction:
    """Share of valid tokens with A < 0 and ρ < 1 − clip_low (low), or A > 0 and ρ > 1 + clip_high (high).

    log_ratio, mask: (B, T); advantages broadcasts to (B, T). A token outside the interval whose advantage pulls it
    back is not counted: it keeps its gradient. Raises ValueError as `clipped_surrogate` and `masking.as_mask` do.
    """
    log_ratio = checks.float_tensor("log_ratio", log_ratio).detach()
    mask = masking.as_mask(mask, like=log_ratio)
    low, high = _interval(clip_low, clip_high)
    log_ratio = checks.exponent("log_ratio", masking.keep_valid("log_ratio", log_ratio, mask))
    log_ratio, advantages = _fitting("log_ratio", log_ratio, advantages)
    ratio, tokens = log_ratio.exp(), mask.sum().item()
    past_low = mask & (advantages < 0) & (ratio < low)
    past_high = mask & (advantages > 0) & (ratio > high)
    return ClipFraction(low=past_low.sum().item() / tokens, high=past_high.sum().item() / tokens)


def _interval(clip_low: float, clip_high: float) -> tuple[float, float]:
    low = 1 - checks.open_unit_interval("clip_low", clip_low)
    return low, 1 + checks.open_unit_interval("clip_high", clip_high)


def _constants(like: Tensor, *values: float) -> list[Tensor]:
    # torch.where on two Python numbers answers in float32, whatever it is multiplied with later.
    return [like.new_tensor(value) for value in values]


def _fitting(name: str, values: Tensor, advantages: Any) -> tuple[Tensor, Tensor]:
    """`values`, and finite advantages that broadcast to their shape."""
    advantages = checks.finite("advantages", advantages)
    try:
        fits = torch.broadcast_shapes(values.shape, advantages.shape) == values.shape
    except RuntimeError:
        fits = False
    if not fits:
        shapes = f"{tuple(advantages.shape)} for {name} {tuple(values.shape)}"
        raise ValueError(f"advantages must have a shape that broadcasts to {name}; got {shapes}")
    return values, advantages
