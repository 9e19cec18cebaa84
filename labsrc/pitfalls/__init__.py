"""Bugs that raise no error and bend training (chapter 7): each a faulty twin of a right function.

`PITFALLS` lists them by name, each with the assertion that tells the twins apart and a run that shows the damage.
"""

from labsrc.pitfalls import groups, judges, lengths, objective, scale, tokens
from labsrc.pitfalls.checklist import Batch, Finding, inspect
from labsrc.pitfalls.record import Effect, Pitfall

__all__ = ["PITFALLS", "Batch", "Effect", "Finding", "Pitfall", "inspect"]

PITFALLS: dict[str, Pitfall] = {
    pitfall.name: pitfall
    for family in (groups, scale, tokens, lengths, objective, judges)
    for pitfall in family.PITFALLS
}
