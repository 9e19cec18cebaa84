"""The numbers a training dashboard shows, from one step's data. They change nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from labsrc import advantages, kl, policy_gradient
from labsrc.toylm import losses
from labsrc.toylm.rollout import Rollout
from labsrc.toylm.settings import OnlineSettings


@torch.no_grad()
def monitor(
    settings: OnlineSettings, rollout: Rollout, token_advantages: Tensor, logp: Tensor
) -> dict[str, float | None]:
    """One step's numbers; `logp` (B, T) is that of the last inner update, before its own optimiser step.

    reward in its unit, kl and entropy in nats per token, length in tokens, shares from 0 to 1. kl is the mean k3 of
    the samples, None where the reference was not asked; the clip shares are None for a loss without a clip.
    """
    rewards = torch.nan_to_num(rollout.rewards, nan=0.0)
    deviation, mean = torch.std_mean(rewards, -1, correction=0)
    low, high = _clip_shares(settings, rollout, token_advantages, logp)
    return {
        "reward_mean": mean.mean().item(),
        "reward_std_within_groups": deviation.mean().item(),
        "zero_variance_share": advantages.is_constant_group(rewards).sum().item() / len(rewards),
        "clip_share_low": low,
        "clip_share_high": high,
        "kl_to_reference": _kl(rollout),
        "entropy": rollout.entropy[rollout.mask].mean().item(),
        "length": sum(rollout.lengths) / len(rollout.lengths),
    }


def _kl(rollout: Rollout) -> float | None:
    if rollout.logp_ref is None:
        return None
    return kl.kl_k3(rollout.logp_old[rollout.mask], rollout.logp_ref[rollout.mask]).mean().item()


def _clip_shares(
    settings: OnlineSettings, rollout: Rollout, token_advantages: Tensor, logp: Tensor
) -> tuple[float | None, float | None]:
    defaults = losses.keyword_defaults(settings.loss_function)
    if "clip_low" not in defaults:
        return None, None
    if settings.inner_updates == 1:
        return 0.0, 0.0  # every ratio is exactly 1
    log_ratio = logp - rollout.logp_old
    if settings.loss_function in losses.SEQUENCE_LEVEL:
        sequence = policy_gradient.sequence_log_ratio(log_ratio, rollout.mask)
        log_ratio = sequence.unsqueeze(-1).expand_as(log_ratio)
    keywords = defaults | settings.loss_keywords
    fraction = policy_gradient.clip_fraction(
        log_ratio,
        token_advantages if token_advantages.dim() == 2 else token_advantages.unsqueeze(-1),
        rollout.mask,
        clip_low=keywords["clip_low"],
        clip_high=keywords["clip_high"],
    )
    return fraction.low, fraction.high
