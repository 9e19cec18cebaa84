"""Dynamic sampling: groups whose completions all earned the same are drawn again (chapter 6)."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from labsrc import advantages, checks
from labsrc.toylm import sampling
from labsrc.toylm.online import OnlineTrainer
from labsrc.toylm.settings import OnlineSettings

FIELDS = tuple(field.name for field in dataclasses.fields(sampling.Completions))


class DynamicSamplingTrainer(OnlineTrainer):
    """The loop of GRPO, each step filled with prompts_per_step groups that have something to teach.

    Whole rounds of prompts are drawn until enough groups are not constant, `max_rounds` at most; what is missing then
    is filled with constant groups, which push nothing. Everything drawn is paid for: `cost` counts the discarded too.
    Source: DAPO arXiv 2503.14476, section 3.2.
    """

    def __init__(self, settings: OnlineSettings, *, max_rounds: int = 20) -> None:
        self.max_rounds = checks.integer_at_least("max_rounds", max_rounds, 1)
        super().__init__(settings)
        self.tabled = False  # a table holds one round of prompts, and a batch here may come from several
        self.rounds: list[int] = []

    def draw(self) -> tuple[sampling.Completions, Tensor]:
        """As many groups as the settings ask for, the ones with differing rewards first."""
        wanted, kept, spare, rounds = self.settings.prompts_per_step, [], [], 0
        while len(kept) < wanted and rounds < self.max_rounds:
            for group in self._round():
                (spare if group[2] else kept).append(group)
            rounds += 1
        self.rounds.append(rounds)
        chosen = (kept + spare)[:wanted]
        # `score` will count the rewards of those that stay.
        self.cost.reward_evaluations -= len(chosen) * self.settings.group_size
        return _stacked([drawn for drawn, _, _ in chosen]), torch.stack([prompt for _, prompt, _ in chosen])

    def _round(self) -> list[tuple[sampling.Completions, Tensor, bool]]:
        """(completions, prompt, whether all rewards are equal) of each group of one round."""
        size, task = self.settings.group_size, self.settings.task
        drawn, prompts = super().draw()
        rewards = task.rewards(sampling.repeat_prompts(prompts, size), drawn.tokens, drawn.mask).view(-1, size)
        self.cost.reward_evaluations += rewards.numel()
        constant = advantages.is_constant_group(rewards).tolist()
        fields = zip(*(getattr(drawn, name).split(size) for name in FIELDS), strict=True)
        groups = [sampling.Completions(*values) for values in fields]
        return list(zip(groups, prompts, constant, strict=True))


def _stacked(groups: list[sampling.Completions]) -> sampling.Completions:
    return sampling.Completions(*(torch.cat([getattr(group, name) for group in groups]) for name in FIELDS))
