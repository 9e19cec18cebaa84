"""The three kinds of exercise, and the verdict on an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Verdict:
    """What the checker says of an answer: state is "right", "wrong" or "waiting"; it prints as its message."""

    state: str
    message: str

    def __repr__(self) -> str:
        """The message behind a mark."""
        return f"{ {'right': '✓', 'wrong': '✗', 'waiting': '…'}[self.state] } {self.message}"


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """What every kind has: a first step for who is stuck, and the reason for who is right."""

    hint: str
    reason: str

    def judge(self, answer: Any) -> Verdict:
        """The verdict on an answer that is not None."""
        raise NotImplementedError

    def right(self) -> Verdict:
        """The verdict on a right answer."""
        return Verdict("right", f"Right. {self.reason}")

    def wrong(self, message: str) -> Verdict:
        """The verdict on a wrong one: what went wrong, or the hint."""
        return Verdict("wrong", message)


@dataclass(frozen=True, kw_only=True)
class Number(Exercise):
    """An exercise answered by one number.

    answer: computes the right number. tolerance: relative, so that an answer rounded to four digits passes. mistakes:
    what to say for a number that a known slip leads to, as (computes the slip's number, the message). A number that is
    the right one with too few digits is told so.
    """

    answer: Callable[[], float]
    tolerance: float = 2e-3
    mistakes: tuple[tuple[Callable[[], float], str], ...] = ()

    def judge(self, answer: Any) -> Verdict:
        """Right within the tolerance; else what explains the number, a slip or missing digits; or the hint."""
        value = _as_float(answer)
        if value is None:
            return self.wrong(f"The answer is one finite number; this is {str(answer)[:60]}.")
        if self._close(value, self.answer()):
            return self.right()
        for slip, message in self.mistakes:
            if self._close(value, slip()):
                return self.wrong(f"Not yet. {message}")
        if _is_shortened(value, self.answer()):
            return self.wrong(f"Close: {value:g} has too few digits. Give more, four are enough.")
        return self.wrong(f"Not yet: {value:.6g} is not it. Hint: {self.hint}")

    def _close(self, value: float, target: float) -> bool:
        return math.isclose(value, target, rel_tol=self.tolerance, abs_tol=1e-9)


def _as_float(answer: Any) -> float | None:
    value = answer.item() if isinstance(answer, Tensor) and answer.numel() == 1 else answer
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int past the largest float
        return None


def _is_shortened(value: float, target: float) -> bool:
    """True if value is target rounded, or cut off, after fewer digits; a tenth off or more, it is another number."""
    unit = 10.0 ** Decimal(repr(value)).normalize().as_tuple().exponent  # of the last digit written
    gap = abs(value - target)
    cut_off = gap < unit and abs(value) < abs(target)
    return (gap <= unit / 2 or cut_off) and gap < 0.1 * abs(target)


@dataclass(frozen=True, kw_only=True)
class Choice(Exercise):
    """An exercise answered by a letter; every option has a reason why it is right or wrong."""

    correct: str
    options: Mapping[str, str] = field(default_factory=dict)

    def judge(self, answer: Any) -> Verdict:
        """The reason behind the chosen letter."""
        letter = str(answer).strip().lower()
        if letter not in self.options:
            return self.wrong(f"Choose one of {', '.join(map(repr, self.options))}; this is {answer!r}.")
        if letter == self.correct:
            return self.right()
        return self.wrong(f"Not yet. {self.options[letter]}")


@dataclass(frozen=True, kw_only=True)
class Code(Exercise):
    """An exercise answered by a function; `trial` runs it and returns what is wrong, or None."""

    trial: Callable[[Callable[..., Any]], str | None]

    def judge(self, answer: Any) -> Verdict:
        """What the first failing case shows; an exception in the reader's function is reported, not raised."""
        if not callable(answer):
            return self.wrong(f"The answer is a function; this is {answer!r}.")
        try:
            fault = self.trial(answer)
        except Exception as error:  # whatever a reader's code raises is an answer to speak about
            fault = f"it raised {type(error).__name__}: {error}"
        return self.right() if fault is None else self.wrong(f"Not yet: {fault}. Hint: {self.hint}")
