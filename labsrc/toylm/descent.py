"""Gradient descent, all weights in one call: on a model this small `torch.optim.SGD` spends more time around it."""

from __future__ import annotations

from typing import Any

import torch


class Descent:
    """weight ← weight − lr·gradient. It has no momentum, so there is no state; otherwise used like `torch.optim.SGD`.

    param_groups: {"params": [weights], "lr": rate} for each set of weights.
    """

    def __init__(self, param_groups: list[dict[str, Any]]) -> None:
        self.param_groups = param_groups

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            moved = [weight for weight in group["params"] if weight.grad is not None]
            torch._foreach_add_(moved, [weight.grad for weight in moved], alpha=-group["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Nothing is carried from one step to the next."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to put back."""
