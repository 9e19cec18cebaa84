"""Exercises whose answers a cell checks: `check("kl-1", answer)` says right, or says what went wrong.

An exercise is one of three kinds: a `Number`, a `Choice` with a reason for every option, or a `Code` task that a
function of the reader's must pass. Right answers are computed by labsrc when asked for, never typed. A chapter's
exercises live in the module named after it, in a table called EXERCISES; adding one is adding one entry there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from labsrc.labs.exercises.kinds import Choice, Code, Exercise, Number, Verdict

__all__ = ["Choice", "Code", "Exercise", "Number", "Verdict", "check", "exercises", "hint"]

CHAPTERS = (
    "kl_rlhf",
    "dpo",
    "group_baselines",
    "clip_and_kl",
    "toy_lm",
    "real_trainer",
    "silent_bugs",
    "cost_and_choice",
)


def exercises() -> dict[str, Exercise]:
    """All exercises of the book by key, in the order of the chapters."""
    table: dict[str, Exercise] = {}
    for chapter in CHAPTERS:
        table |= import_module(f"labsrc.labs.exercises.{chapter}").EXERCISES
    return table


def check(key: str, answer: Any) -> Verdict:
    """Judge `answer` to the exercise `key`; None means "not answered yet".

    Returns a Verdict that prints itself. Raises ValueError for a key that is not in the book.
    """
    exercise = _exercise(key)
    if answer is None or answer is Ellipsis:
        return Verdict("waiting", "Waiting for your answer: put it in place of None and run the cell again.")
    return exercise.judge(answer)


def hint(key: str) -> str:
    """A first step for the exercise `key`. Raises ValueError for a key that is not in the book."""
    return _exercise(key).hint


def _exercise(key: str) -> Exercise:
    table = exercises()
    if key not in table:
        raise ValueError(f"key must name an exercise, one of {', '.join(table)}; got {key!r}")
    return table[key]
