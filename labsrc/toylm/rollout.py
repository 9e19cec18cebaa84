"""One step's data: prompts, completions, rewards, and the log-probabilities of the three roles."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from labsrc import checks, masking


def choose_prompts(prompts: Tensor, count: int, *, generator: torch.Generator) -> Tensor:
    """`count` different prompts, (N, L) → (count, L): all of them in order, or a random choice from the generator."""
    if count == len(prompts):
        return prompts
    return prompts[torch.randperm(len(prompts), generator=generator)[:count]]


@dataclass(frozen=True)
class Rollout:
    """P prompts and their P·G completions, scored. B = P·G; the G completions of one prompt stand side by side.

    Raises ValueError for shapes that do not fit, a group of fewer than two, a non-finite reward, or an empty row of
    the mask.
    """

    prompts: Tensor  # (P, L)
    completions: Tensor  # (B, T)
    mask: Tensor  # (B, T), True counts
    rewards: Tensor  # (P, G)
    logp_old: Tensor  # (B, T), the policy that sampled; a constant
    logp_ref: Tensor | None  # (B, T), the reference; None where nothing asks for it
    entropy: Tensor  # (B, T), nats, of the sampling distribution

    def __post_init__(self) -> None:
        """Refuse what the objectives could not use, by name."""
        rewards = checks.float_tensor("rewards", self.rewards)
        if rewards.dim() != 2 or rewards.shape[1] < 2:
            raise ValueError(f"rewards must be (P, G) with groups of at least 2; got shape {tuple(rewards.shape)}")
        if len(self.completions) != rewards.numel() or len(self.prompts) != len(rewards):
            shapes = f"{tuple(self.prompts.shape)}, {tuple(self.completions.shape)} and {tuple(rewards.shape)}"
            raise ValueError(f"prompts, completions and rewards must be (P, L), (P·G, T) and (P, G); got {shapes}")
        # A NaN is left to the advantage function: one of them knows what to do with a missing reward.
        if rewards.isinf().any():
            raise ValueError(f"rewards must not be infinite; got {rewards.tolist()}")
        masking.as_mask(self.mask, like=self.completions)
        for name in ("logp_old", "logp_ref"):
            values = getattr(self, name)
            if values is not None and values.shape != self.completions.shape:
                raise ValueError(
                    f"{name} must have the shape {tuple(self.completions.shape)} of the completions; "
                    f"got {tuple(values.shape)}"
                )

    @functools.cached_property
    def lengths(self) -> list[int]:
        """Tokens of each completion, EOS included: B whole numbers."""
        return self.mask.sum(-1).tolist()

    @property
    def group_size(self) -> int:
        """G, completions a prompt."""
        return self.rewards.shape[1]
