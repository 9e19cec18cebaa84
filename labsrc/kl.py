"""The Kullback–Leibler divergence, exact and by sample, in nats (chapter 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks


def kl_divergence(p: Any, q: Any) -> Tensor:
    """Exact KL(p‖q) = Σ_a p(a)·log(p(a)/q(a)) on the last axis.

    p, q: (…, K) probabilities; leading axes broadcast. Returns (…) in nats; 0·log 0 = 0, and +inf where p has
    mass that q lacks. The gradient flows into both. Raises ValueError unless both are distributions.
    Source: Kullback & Leibler 1951, "On information and sufficiency".

    >>> kl_divergence([0.7, 0.2, 0.1], [0.2, 0.3, 0.5]).item()  # doctest: +ELLIPSIS
    0.634897...
    """
    p, q = checks.distribution("p", p), checks.distribution("q", q)
    checks.broadcastable(p=p, q=q)
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(f"p and q must list the same actions; got {p.shape[-1]} and {q.shape[-1]}")
    # Actions outside the support of p are taken out before the logarithm, so that 0·log 0 has gradient 0, not NaN.
    p, q = torch.broadcast_tensors(p, q)
    support = p > 0
    log_ratio = torch.where(support, p, 1.0).log() - torch.where(support, q, 1.0).log()
    return (p * log_ratio).sum(-1)


def kl_k1(logp: Any, logp_ref: Any) -> Tensor:
    """k1 = log π − log π_ref: unbiased for KL(π‖π_ref) on samples of π, and of either sign.

    logp, logp_ref: any one shape, log-probabilities (nats) of the sampled actions under the current and the
    reference policy. Returns that shape, in nats. Raises ValueError for shapes that differ or non-finite values.
    Source: Schulman 2020, "Approximating KL divergence".
    """
    logp, logp_ref = _log_probs(logp, logp_ref)
    return logp - logp_ref


def kl_k2(logp: Any, logp_ref: Any) -> Tensor:
    """k2 = ½·(log π − log π_ref)²: non-negative, biased as a value; its on-policy gradient is ∇KL exactly.

    Shapes, unit and refusals as `kl_k1`. Source: Schulman 2020; the gradient: arXiv 2510.01555.
    """
    logp, logp_ref = _log_probs(logp, logp_ref)
    return (logp_ref - logp).square() / 2


def kl_k3(logp: Any, logp_ref: Any) -> Tensor:
    """k3 = e^Δ − Δ − 1 with Δ = log π_ref − log π: non-negative, unbiased for KL(π‖π_ref) on samples of π.

    Shapes and unit as `kl_k1`; raises ValueError also when e^Δ overflows. The value is right on samples of π;
    the gradient of the fixed samples is that of KL(π_ref‖π). Source: Schulman 2020; DeepSeekMath
    arXiv 2402.03300, eq. 4.

    >>> kl_k3([-1.0], [-1.0]).tolist()
    [0.0]
    """
    logp, logp_ref = _log_probs(logp, logp_ref)
    delta = checks.exponent("logp_ref - logp", logp_ref - logp)
    # expm1 keeps the digits that e^Δ − 1 loses when the two policies are close, which is where training starts.
    return torch.expm1(delta) - delta


def ratio_weighted(kl_per_token: Any, log_ratio: Any) -> Tensor:
    """ρ·k with ρ = π/π_old *in the graph*: moves an estimate from samples of π_old to the current policy.

    kl_per_token, log_ratio: shapes that broadcast; log_ratio = logp − logp_old, in nats. Returns the estimate per
    token. With k1 or k3 the mean over samples of π_old has the value and the gradient of the true KL; a detached
    ratio keeps the value and loses a term of the gradient. Raises ValueError for non-finite values or an overflow.
    Source: arXiv 2510.01555; DeepSeek-V3.2 arXiv 2512.02556.
    """
    kl_per_token = checks.finite("kl_per_token", kl_per_token)
    log_ratio = checks.exponent("log_ratio", log_ratio)
    checks.broadcastable(kl_per_token=kl_per_token, log_ratio=log_ratio)
    return log_ratio.exp() * kl_per_token


def _log_probs(logp: Any, logp_ref: Any) -> tuple[Tensor, Tensor]:
    logp, logp_ref = checks.finite("logp", logp), checks.finite("logp_ref", logp_ref)
    checks.same_shape(logp=logp, logp_ref=logp_ref)
    return logp, logp_ref
