"""What is known of one silent bug: the right function, its faulty twin, the assertion between them, the damage."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Effect:
    """One number after the same training with the right function and with the faulty one."""

    measure: str
    right: float
    faulty: float


@dataclass(frozen=True)
class Pitfall:
    """A bug that raises no error.

    symptom: what its victim sees, one sentence. right and faulty take the same arguments. assertion(function) returns
    for the right one and raises AssertionError for the faulty one. effect trains with both.
    """

    name: str
    symptom: str
    right: Callable[..., Any]
    faulty: Callable[..., Any]
    assertion: Callable[[Callable[..., Any]], None]
    effect: Callable[[], Effect]

    def finding(self, function: Callable[..., Any]) -> str:
        """What the assertion says of `function`; empty if it holds."""
        try:
            self.assertion(function)
        except AssertionError as error:
            return str(error)
        return ""

    def diff(self) -> str:
        """The right function turned into the faulty one: lines that go begin with −, lines that come with +."""
        name = f"{self.right.__name__} → {self.faulty.__name__}"
        right, faulty = (_code(function, name) for function in (self.right, self.faulty))
        lines = difflib.unified_diff(right, faulty, n=len(right) + len(faulty), lineterm="")
        return "\n".join(list(lines)[3:])  # after the two file names and the place

    def report(self) -> str:
        """The diff, the assertion, what it says of both, and the damage: what chapter 7 shows of a bug."""
        effect = self.effect()
        return "\n".join(
            [
                self.diff(),
                "",
                inspect.getsource(self.assertion).rstrip(),
                "",
                f"right:  {self.finding(self.right) or 'the assertion holds'}",
                f"faulty: {self.finding(self.faulty)}",
                f"{effect.measure}:",
                f"right {effect.right:.4f}, faulty {effect.faulty:.4f}",
            ]
        )


def _code(function: Callable[..., Any], name: str) -> list[str]:
    """Signature and body without the docstring, under a name that both twins share."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    definition.body = definition.body[1:]
    body = ast.unparse(definition).splitlines()[1:]
    arguments = ", ".join(inspect.signature(function).parameters)
    return [f"{name}({arguments}):", *body]
