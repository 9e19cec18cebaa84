"""A reward that was learned: a small scorer fitted to preferences over completions, then used as a task's reward."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from labsrc import checks, preference
from labsrc.toylm import offline, sampling, start
from labsrc.toylm.model import Decoder
from labsrc.toylm.settings import ModelSettings
from labsrc.toylm.tasks import FirstToken, Task


@dataclass(frozen=True)
class LearnedReward:
    """`task` with its reward replaced by that of a model trained on Bradley–Terry preferences about it.

    pairs: completions come from the freshly drawn policy of `model`, labels from the task's own reward; steps of Adam
    at rate lr on all pairs; seed of pairs and scorer. What is meant stays available as `intended_rewards`.
    Preferences fix a reward up to a constant for each prompt, so only differences compare.
    """

    name: ClassVar[str] = "learned_reward"
    task: Task = field(default_factory=FirstToken)
    model: ModelSettings = field(default_factory=ModelSettings)
    pairs: int = 4000
    steps: int = 60
    lr: float = 1e-2
    seed: int = 11

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name, smallest in (("pairs", 1), ("steps", 1), ("seed", 0)):
            checks.integer_at_least(name, getattr(self, name), smallest)
        checks.positive("lr", self.lr)

    @property
    def vocabulary(self) -> int:
        """V of the task."""
        return self.task.vocabulary

    @property
    def max_new_tokens(self) -> int:
        """T of the task."""
        return self.task.max_new_tokens

    @property
    def eos_token(self) -> int | None:
        """The task's EOS."""
        return self.task.eos_token

    @property
    def prompt_tokens(self) -> Tensor:
        """The task's prompts, (N, L) ids."""
        return self.task.prompt_tokens

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """The scorer's number for each completion: (B,)."""
        with torch.no_grad():
            return score(fitted_scorer(self), prompts, completions, mask).double()

    def intended_rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """The reward the preferences were about: (B,)."""
        return self.task.rewards(prompts, completions, mask)


def score(scorer: Decoder, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
    """The scorer's output at the last valid token: (B, L), (B, T), (B, T) → (B,)."""
    outputs, _ = scorer(torch.cat([prompts, completions], -1))
    last = prompts.shape[-1] + mask.sum(-1) - 1
    return outputs[torch.arange(len(outputs)), last, 0]


def preference_loss(scores: Tensor) -> Tensor:
    """−mean log σ(r_chosen − r_rejected), in nats; scores: (2N,), those of the chosen first."""
    return -preference.preference_log_prob(*scores.chunk(2)).mean()


@functools.lru_cache(maxsize=16)
@torch.enable_grad()  # it is first asked for where rewards are read, without a gradient
def fitted_scorer(settings: LearnedReward) -> Decoder:
    """The scorer of these settings, trained once and then frozen."""
    generator = torch.Generator().manual_seed(settings.seed)
    policy = start.fresh_model(settings.model, settings.task)
    drawn = offline.draw_pairs(policy, settings.task, settings.pairs, generator=generator)
    pairs = offline.label_pairs(drawn, settings.task, labels="bradley_terry", generator=generator)
    scorer = start.fresh_model(settings.model, settings.task, outputs=1, seed=settings.seed)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=settings.lr)
    # Short completions meet again and again: each different one is scored once a step.
    rows = torch.cat([pairs.prompts, pairs.completions], -1)
    different, where = torch.unique(rows, dim=0, return_inverse=True)
    prompts, completions = different.split([pairs.prompts.shape[1], pairs.completions.shape[1]], -1)
    mask = sampling.valid_tokens(completions, settings.eos_token)
    for _ in range(settings.steps):
        optimizer.zero_grad()
        preference_loss(score(scorer, prompts, completions, mask)[where]).backward()
        optimizer.step()
    return scorer.requires_grad_(False)
