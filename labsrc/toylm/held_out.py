"""Evaluation apart from training: questions that were held out, and a verifier that looks at less (chapter 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from labsrc import checks
from labsrc.toylm.tasks import Addition


@dataclass(frozen=True)
class QuestionsOf:
    """Some of the questions of `task`, by their numbers; answers and rewards are the task's own.

    numbers: different rows of task.prompt_tokens, at least one. Raises ValueError for anything else.
    """

    name: ClassVar[str] = "questions_of"
    task: Addition = field(default_factory=Addition)
    numbers: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Refuse numbers that are no questions, or asked twice."""
        count = len(self.task.prompt_tokens)
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in self.numbers)
        if not self.numbers or not whole or not all(0 <= n < count for n in self.numbers):
            raise ValueError(f"numbers must be whole numbers from 0 to {count - 1}, at least one; got {self.numbers!r}")
        if len(set(self.numbers)) < len(self.numbers):
            raise ValueError(f"numbers must all be different; got {self.numbers!r}")

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
        """The chosen prompts, (N, L) ids."""
        return self.task.prompt_tokens[list(self.numbers)]

    def answers(self, prompts: Tensor) -> Tensor:
        """As the task's."""
        return self.task.answers(prompts)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """As the task's: (B,)."""
        return self.task.rewards(prompts, completions, mask)


def split(task: Addition, *, held_out: int, seed: int = 0) -> tuple[QuestionsOf, QuestionsOf]:
    """The questions of a task dealt into those to train on and `held_out` others, at random by `seed`.

    Raises ValueError unless 0 < held_out < the number of questions.
    """
    count = len(task.prompt_tokens)
    if checks.integer_at_least("held_out", held_out, 1) >= count:
        raise ValueError(f"held_out must be less than the {count} questions of the task; got {held_out!r}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(checks.integer_at_least("seed", seed, 0)))
    numbers = order.tolist()
    return QuestionsOf(task, tuple(sorted(numbers[held_out:]))), QuestionsOf(task, tuple(sorted(numbers[:held_out])))


@dataclass(frozen=True)
class FirstDigit(Addition):
    """Addition with a lazy verifier: reward 1 for the right first digit, whatever comes after it."""

    name: ClassVar[str] = "first_digit"

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """1 where the first token is that of the answer: (B,)."""
        return (completions[..., 0] == self.answers(prompts)[..., 0]).double()
