"""What PPO's critic is for: a value for every token, advantages from values, and the critic's own loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import aggregation, checks, masking


def token_rewards(scores: Any, mask: Any, penalty: Any = None) -> Tensor:
    """One score a completion, earned at its last valid token, less the KL penalty of each token: (B, T).

    scores: (B,); mask: (B, T), True for the tokens of the completion, which come first; penalty: (B, T), in units of
    reward, or None. Raises ValueError for non-finite scores or shapes that do not fit.
    """
    scores = checks.finite("scores", scores)
    mask = masking.as_mask(mask, like=torch.as_tensor(mask))
    checks.same_shape(scores=scores, mask=mask[:, 0])
    last = mask & ~torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    rewards = torch.where(last, scores.unsqueeze(-1), 0.0)
    return rewards if penalty is None else rewards - masking.keep_valid("penalty", penalty, mask)


def generalized_advantages(rewards: Any, values: Any, mask: Any, *, gamma: float, gae_lambda: float) -> Tensor:
    """A_t = Σ_l (γλ)^l·δ_{t+l} with δ_t = r_t + γ·V_{t+1} − V_t, and V = 0 after the last valid token.

    rewards, values, mask: (B, T). Returns (B, T), zero at masked tokens. λ = 1 gives the return less V_t, which keeps
    the policy gradient unbiased whatever V is; λ = 0 trusts V after one step. Raises ValueError for shapes that do not
    fit or non-finite valid entries. Source: GAE arXiv 1506.02438, eq. 16.
    """
    rewards = checks.float_tensor("rewards", rewards)
    mask = masking.as_mask(mask, like=rewards)
    rewards, values = masking.keep_valid("rewards", rewards, mask), masking.keep_valid("values", values, mask)
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    delta = rewards + gamma * following - values
    total, columns = torch.zeros_like(delta[:, 0]), []
    for step in reversed(range(delta.shape[1])):
        total = delta[:, step] + gamma * gae_lambda * total
        columns.append(total)
    return torch.where(mask, torch.stack(columns[::-1], 1), 0.0)


def value_loss(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """½·mean over valid tokens of (V_t − return_t)²; returns are constants. Source: PPO arXiv 1707.06347, eq. 9."""
    return aggregation.mean_over_tokens((values - returns.detach()).square(), mask) / 2
