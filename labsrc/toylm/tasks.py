"""Tasks: prompts, and a reward that anybody can recompute from the tokens. They know no model.

A task is a frozen dataclass with the fields of `Task`. Completions come with their mask; padding never earns anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from labsrc import checks


class Task(Protocol):
    """What every task offers."""

    name: ClassVar[str]
    vocabulary: int  # V, token ids 0 … V − 1
    max_new_tokens: int  # T, the longest completion
    eos_token: int | None  # the id that ends a completion; None: all completions have T tokens

    @property
    def prompt_tokens(self) -> Tensor:
        """(N, L) ids, all of one length."""

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """One float64 reward a completion: (B, L), (B, T), (B, T) → (B,)."""


@dataclass(frozen=True)
class FirstToken:
    """Reward 1 when the first generated token is `target`, else 0: small enough to enumerate.

    prompts: tuples of ids of one length; max_new_tokens T ≥ 1; eos_token None for completions of exactly T tokens.
    """

    name: ClassVar[str] = "first_token"
    target: int = 6
    prompts: tuple[tuple[int, ...], ...] = ((1, 3),)
    vocabulary: int = 8
    max_new_tokens: int = 2
    eos_token: int | None = None

    def __post_init__(self) -> None:
        """Refuse tokens outside the vocabulary, ragged prompts and empty completions."""
        _check_task(self)
        _check_token("target", self.target, self.vocabulary)

    @property
    def prompt_tokens(self) -> Tensor:
        """(N, L) ids."""
        return torch.tensor(self.prompts)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """1 where the first token is the target: (B,)."""
        return (completions[..., 0] == self.target).double()


@dataclass(frozen=True)
class LengthBonus:
    """Reward 1 for the target as first token, plus `bonus` for every token: a scorer that likes long answers.

    What was meant is `intended_rewards`, which asks for the target only. A policy can earn more by never stopping.
    """

    name: ClassVar[str] = "length_bonus"
    target: int = 6
    bonus: float = 0.2
    prompts: tuple[tuple[int, ...], ...] = ((1, 3),)
    vocabulary: int = 8
    max_new_tokens: int = 8
    eos_token: int = 0

    def __post_init__(self) -> None:
        """Refuse as `FirstToken` does; the bonus must be finite."""
        _check_task(self)
        _check_token("target", self.target, self.vocabulary)
        checks.number("bonus", self.bonus)

    @property
    def prompt_tokens(self) -> Tensor:
        """(N, L) ids."""
        return torch.tensor(self.prompts)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """The intended reward plus bonus·length: (B,)."""
        return self.intended_rewards(prompts, completions, mask) + self.bonus * mask.sum(-1)

    def intended_rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """What the scorer was meant to measure: (B,)."""
        return (completions[..., 0] == self.target).double()


@dataclass(frozen=True)
class Addition:
    """a + b = for all 0 ≤ a, b ≤ largest; reward 1 for exactly the digits of the sum and EOS, else 0.

    Ids 0–9 are the digits, 10 is +, 11 is =, 12 ends the answer. Answers have one or two digits, so lengths differ.
    """

    name: ClassVar[str] = "addition"
    largest: int = 9
    vocabulary: ClassVar[int] = 13
    plus: ClassVar[int] = 10
    equals: ClassVar[int] = 11
    eos_token: ClassVar[int] = 12
    max_new_tokens: ClassVar[int] = 3

    def __post_init__(self) -> None:
        """Refuse numbers of more than one digit."""
        if checks.integer_at_least("largest", self.largest, 1) > 9:
            raise ValueError(f"largest must be a single digit, at most 9; got {self.largest!r}")

    @property
    def prompt_tokens(self) -> Tensor:
        """((largest + 1)², 4) ids: a + b =, every pair once."""
        a, b = torch.cartesian_prod(torch.arange(self.largest + 1), torch.arange(self.largest + 1)).unbind(-1)
        return torch.stack([a, torch.full_like(a, self.plus), b, torch.full_like(a, self.equals)], -1)

    def answers(self, prompts: Tensor) -> Tensor:
        """The right completion of each prompt, (B, 4) → (B, 3): digits, then EOS to the end."""
        total = prompts[..., 0] + prompts[..., 2]
        eos = torch.full_like(total, self.eos_token)
        one_digit = torch.stack([total, eos, eos], -1)
        two_digits = torch.stack([total // 10, total % 10, eos], -1)
        return torch.where((total < 10).unsqueeze(-1), one_digit, two_digits)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """1 for the right digits followed by EOS: (B,)."""
        # What stands after the first EOS does not count, so it is made equal before comparing.
        return (torch.where(mask, completions, self.eos_token) == self.answers(prompts)).all(-1).double()


def _check_task(task: FirstToken | LengthBonus) -> None:
    checks.integer_at_least("vocabulary", task.vocabulary, 2)
    checks.integer_at_least("max_new_tokens", task.max_new_tokens, 1)
    if not task.prompts or len({len(prompt) for prompt in task.prompts}) != 1 or not task.prompts[0]:
        raise ValueError(f"prompts must be at least one list of ids, all of one length > 0; got {task.prompts!r}")
    for prompt in task.prompts:
        for token in prompt:
            _check_token("prompts", token, task.vocabulary)
    if task.eos_token is not None:
        _check_token("eos_token", task.eos_token, task.vocabulary)


def _check_token(name: str, token: int, vocabulary: int) -> None:
    if checks.integer_at_least(name, token, 0) >= vocabulary:
        raise ValueError(f"{name} must hold token ids below the vocabulary of {vocabulary}; got {token!r}")
