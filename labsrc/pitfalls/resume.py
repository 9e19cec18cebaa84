"""Stop and resume: the toy LM's whole state, and what a run becomes when a part of it is forgotten."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from labsrc import checks, toylm
from labsrc.toylm import start
from labsrc.toylm.settings import TrainingSettings
from labsrc.toylm.trainer import Trainer

PARTS = ("optimizer", "generator", "reference")


@dataclass(frozen=True)
class Resumed:
    """A run stopped and continued, beside the one that was never stopped: the whole monitors of both."""

    whole: Trainer
    resumed: Trainer

    @property
    def weight_gap(self) -> float:
        """The largest difference of a weight; 0 means equal to the last bit."""
        pairs = zip(self.whole.policy.parameters(), self.resumed.policy.parameters(), strict=True)
        return max((one - other).abs().max().item() for one, other in pairs)

    def curve(self, name: str) -> tuple[list[float], list[float]]:
        """One monitor of every step: of the whole run, and of the resumed one."""
        return tuple([row[name] for row in trainer.monitors] for trainer in (self.whole, self.resumed))


def stop_and_resume(settings: TrainingSettings, *, after: int, forget: str | None = None) -> Resumed:
    """Train to the end; and again, stopped after some steps and resumed in a new trainer without one part of its state.

    forget: None, or one of `PARTS`. A forgotten optimiser begins with empty moments, a forgotten generator at its seed,
    a forgotten reference is copied from the policy as it is at the stop. Raises ValueError for another part, or `after`
    that is not between 1 and settings.steps − 1.
    """
    if forget is not None:
        checks.one_of("forget", forget, PARTS)
    if not checks.integer_at_least("after", after, 1) < settings.steps:
        raise ValueError(f"after must be below the {settings.steps} steps of the run; got {after!r}")
    stopped = toylm.new_trainer(settings)
    for _ in range(after):
        stopped.step()
    resumed = toylm.new_trainer(settings)
    # What a file would hold: the new trainer must not share a tensor with the old one.
    state = copy.deepcopy(stopped.state())
    if forget == "reference":
        state["reference"] = state["policy"]
    elif forget is not None:
        state[forget] = resumed.state()[forget]
    resumed.load_state(state)
    resumed.finish()
    return Resumed(toylm.train(settings), resumed)


def kl_to_start(trainer: Trainer) -> float:
    """Sequence KL in nats, exact, from the policy to where the run began, whatever the trainer calls its reference."""
    beginning = start.start_policy(trainer.settings)
    with torch.no_grad():
        return toylm.evaluate(trainer.policy, beginning, trainer.settings.task)["sequence_kl"]
