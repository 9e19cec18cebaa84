"""Preference losses, per pair (chapter 2). Log-probabilities are in nats; every loss is minimised."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from labsrc import checks


def preference_log_prob(reward_chosen: Any, reward_rejected: Any) -> Tensor:
    """log P(chosen ≻ rejected) = log σ(r_chosen − r_rejected), the Bradley–Terry model.

    Both rewards: any one shape. Returns that shape, in nats. The gradient flows into both. Raises ValueError for
    shapes that differ or non-finite rewards. Source: Bradley & Terry 1952; DPO arXiv 2305.18290, eq. 1.
    """
    reward_chosen = checks.finite("reward_chosen", reward_chosen)
    reward_rejected = checks.finite("reward_rejected", reward_rejected)
    checks.same_shape(reward_chosen=reward_chosen, reward_rejected=reward_rejected)
    return logsigmoid(reward_chosen - reward_rejected)


def log_ratio_margin(logp_chosen: Any, logp_rejected: Any, logp_ref_chosen: Any, logp_ref_rejected: Any) -> Tensor:
    """h = [log π(y_w) − log π_ref(y_w)] − [log π(y_l) − log π_ref(y_l)], what every loss with a reference sees.

    All four: any one shape, *summed* over the valid tokens of a completion (`masking.sum_over_tokens`), in nats.
    Returns that shape. The gradient flows into every tensor that asks for one. Raises ValueError for shapes that
    differ or non-finite values. Source: DPO arXiv 2305.18290, the bracket of eq. 7.
    """
    pairs = {
        "logp_chosen": logp_chosen,
        "logp_rejected": logp_rejected,
        "logp_ref_chosen": logp_ref_chosen,
        "logp_ref_rejected": logp_ref_rejected,
    }
    pairs = {name: checks.finite(name, value) for name, value in pairs.items()}
    checks.same_shape(**pairs)
    chosen, rejected, ref_chosen, ref_rejected = pairs.values()
    return (chosen - ref_chosen) - (rejected - ref_rejected)


def dpo_logits(
    logp_chosen: Any, logp_rejected: Any, logp_ref_chosen: Any, logp_ref_rejected: Any, *, beta: float
) -> Tensor:
    """β·h: the margin between the two implicit rewards, log Z having cancelled (`log_ratio_margin` is h).

    Shapes and refusals as `log_ratio_margin`; beta > 0. Source: DPO arXiv 2305.18290, eq. 6–7.

    >>> dpo_logits([-2.2], [-2.8], [-2.0], [-2.4], beta=0.1)
    tensor([0.0200], dtype=torch.float64)
    """
    beta = checks.positive("beta", beta)
    return beta * log_ratio_margin(logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected)


def dpo_loss(
    logp_chosen: Any, logp_rejected: Any, logp_ref_chosen: Any, logp_ref_rejected: Any, *, beta: float
) -> Tensor:
    """−log σ(β·h) per pair: the Bradley–Terry likelihood of the label under the implicit rewards.

    Arguments, shapes and refusals as `dpo_logits`. Returns nats per pair; log 2 means "no margin".
    Source: DPO arXiv 2305.18290, eq. 7.
    """
    return -logsigmoid(dpo_logits(logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected, beta=beta))


def smoothed_dpo_loss(
    logp_chosen: Any,
    logp_rejected: Any,
    logp_ref_chosen: Any,
    logp_ref_rejected: Any,
    *,
    beta: float,
    label_smoothing: float,
) -> Tensor:
    """−(1 − s)·log σ(β·h) − s·log σ(−β·h): DPO when a share s of the labels is believed to be flipped.

    As `dpo_loss`; label_smoothing s lies in [0, 0.5), and the loss is least at the finite margin log((1 − s)/s).
    Source: Mitchell 2023, "A note on DPO with noisy preferences" (conservative DPO).
    """
    if not 0 <= checks.number("label_smoothing", label_smoothing) < 0.5:
        raise ValueError(f"label_smoothing must be at least 0 and below 0.5; got {label_smoothing!r}")
    logits = dpo_logits(logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected, beta=beta)
    return -(1 - label_smoothing) * logsigmoid(logits) - label_smoothing * logsigmoid(-logits)


def ipo_loss(
    logp_chosen: Any, logp_rejected: Any, logp_ref_chosen: Any, logp_ref_rejected: Any, *, beta: float
) -> Tensor:
    """(h − 1/(2β))²: a margin to reach, not to push without end.

    As `dpo_loss`, β being the paper's τ; returns squared nats per pair. Some libraries average log-probabilities
    over tokens first: then pass those means. Source: IPO arXiv 2310.12036, eq. 17.
    """
    target = 1 / (2 * checks.positive("beta", beta))
    return (log_ratio_margin(logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected) - target).square()


def simpo_loss(mean_logp_chosen: Any, mean_logp_rejected: Any, *, beta: float, margin: float) -> Tensor:
    """−log σ(β·(mean_w − mean_l) − γ): no reference; log-probabilities are *means* over a completion's tokens.

    mean_logp_chosen, mean_logp_rejected: any one shape, nats per token. margin is γ ≥ 0. Returns nats per pair.
    Raises ValueError for shapes that differ, non-finite values, beta ≤ 0 or margin < 0.
    Source: SimPO arXiv 2405.14734, eq. 6.
    """
    beta, margin = checks.positive("beta", beta), checks.non_negative("margin", margin)
    mean_logp_chosen = checks.finite("mean_logp_chosen", mean_logp_chosen)
    mean_logp_rejected = checks.finite("mean_logp_rejected", mean_logp_rejected)
    checks.same_shape(mean_logp_chosen=mean_logp_chosen, mean_logp_rejected=mean_logp_rejected)
    return -logsigmoid(beta * (mean_logp_chosen - mean_logp_rejected) - margin)


def kto_loss(
    logp: Any,
    logp_ref: Any,
    desirable: Any,
    *,
    beta: float,
    kl_reference: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """λ − λ·σ(±(β·(log π − log π_ref) − β·z₀)): one completion and a thumb up or down, no pairs.

    logp, logp_ref: any one shape, summed over tokens, in nats; desirable: that shape, True for thumb up (sign +,
    λ = desirable_weight), False for thumb down (sign −, λ = undesirable_weight). kl_reference is z₀ ≥ 0 in nats, the
    batch's KL estimate, a constant: no gradient goes through it. Returns λ minus the paper's value, per completion.
    Raises ValueError for anything else. Source: KTO arXiv 2402.01306, eq. 8.
    """
    logp, logp_ref = checks.finite("logp", logp), checks.finite("logp_ref", logp_ref)
    try:
        desirable = torch.as_tensor(desirable, device=logp.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"desirable must hold True or False; got {desirable!r}") from error
    checks.same_shape(logp=logp, logp_ref=logp_ref, desirable=desirable)
    if desirable.dtype != torch.bool:
        raise ValueError(f"desirable must hold True or False; got dtype {desirable.dtype}")
    beta, kl_reference = checks.positive("beta", beta), checks.non_negative("kl_reference", kl_reference)
    weights = (
        checks.positive("desirable_weight", desirable_weight),
        checks.positive("undesirable_weight", undesirable_weight),
    )
    gain = beta * (logp - logp_ref - kl_reference)
    return torch.where(desirable, weights[0] * torch.sigmoid(-gain), weights[1] * torch.sigmoid(gain))
