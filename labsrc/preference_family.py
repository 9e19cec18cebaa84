"""The family of preference losses as functions of one number, so that they can be drawn on one axis (chapter 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks, preference

NAMES = ("DPO", "smoothed", "IPO", "SimPO", "KTO")


def losses_by_margin(
    margin: Any, *, beta: float, label_smoothing: float = 0.1, simpo_margin: float = 1.0
) -> dict[str, Tensor]:
    """Every loss of `NAMES` for a pair whose margin is h, by name.

    margin: any shape, nats: the log-ratio margin h, reached by moving the chosen completion up by h/2 and the rejected
    one down by h/2 against a reference that likes both alike. SimPO, which has no reference, sees h as the difference
    of the mean log-probabilities, the completions being one token long. KTO, which has no pairs, sees the two as one
    thumb up and one thumb down with z₀ = 0, and its two losses are added. Returns tensors of margin's shape; the
    gradient flows into margin. Raises ValueError as the losses in `preference` do.

    >>> losses_by_margin(0.0, beta=0.5)["KTO"].item()
    1.0
    """
    up = checks.finite("margin", margin) / 2
    level = torch.zeros_like(up)
    pair = up, -up, level, level
    # A single thumb's loss takes the same two log-probabilities, that of the policy and that of the reference.
    thumbs = {"beta": beta, "kl_reference": 0.0}
    liked = torch.ones_like(up, dtype=torch.bool)
    return {
        "DPO": preference.dpo_loss(*pair, beta=beta),
        "smoothed": preference.smoothed_dpo_loss(*pair, beta=beta, label_smoothing=label_smoothing),
        "IPO": preference.ipo_loss(*pair, beta=beta),
        "SimPO": preference.simpo_loss(up, -up, beta=beta, margin=simpo_margin),
        "KTO": preference.kto_loss(up, level, liked, **thumbs) + preference.kto_loss(-up, level, ~liked, **thumbs),
    }


@torch.enable_grad()
def pushes_by_margin(margin: Any, **settings: float) -> dict[str, Tensor]:
    """−dL/dh of every loss, divided by its value at h = 0: how hard the loss still pushes, 1 where there is no margin.

    Arguments as `losses_by_margin`. Returns tensors of margin's shape, numbers without a gradient. Negative where the
    loss pulls the margin back.
    """
    margin = checks.finite("margin", margin).detach()
    at, start = _pushes(margin, settings), _pushes(torch.zeros((), dtype=margin.dtype), settings)
    return {name: at[name] / start[name] for name in NAMES}


def _pushes(margin: Tensor, settings: dict[str, float]) -> dict[str, Tensor]:
    leaf = margin.clone().requires_grad_()
    losses = losses_by_margin(leaf, **settings)
    # Every entry depends on its own margin only, so the gradient of the sum is each entry's slope.
    return {name: -torch.autograd.grad(loss.sum(), leaf, retain_graph=True)[0] for name, loss in losses.items()}
