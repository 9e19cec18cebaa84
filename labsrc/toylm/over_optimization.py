"""Climbing a learned reward, with the reward that was meant looked at beside it (chapter 8)."""

from __future__ import annotations

from dataclasses import dataclass

from labsrc import checks
from labsrc.toylm import exact_policy, training
from labsrc.toylm.reward_model import LearnedReward
from labsrc.toylm.settings import TrainingSettings
from labsrc.toylm.trainer import Trainer


@dataclass(frozen=True)
class Climb:
    """Along a run: steps done, E of the learned reward, E of the intended one, and KL(π‖π_ref) in nats, all exact."""

    steps: list[int]
    learned: list[float]
    intended: list[float]
    kl: list[float]

    @property
    def best(self) -> int:
        """The entry at which the intended reward was highest."""
        return max(range(len(self.intended)), key=self.intended.__getitem__)


def climb(settings: TrainingSettings, *, every: int = 5) -> Climb:
    """Train on a learned reward and look at both rewards before the first step and after each `every`.

    settings.task: a `LearnedReward` over a task small enough to enumerate. Raises ValueError for another task, or
    every < 1.
    """
    checks.integer_at_least("every", every, 1)
    if not isinstance(settings.task, LearnedReward):
        raise ValueError(f"task must be a LearnedReward; got {settings.task!r}")
    intended = settings.task.task
    found = Climb([], [], [], [])

    def look(trainer: Trainer) -> None:
        if trainer.steps_done % every == 0:
            found.steps.append(trainer.steps_done)
            found.learned.append(exact_policy.expected_reward(trainer.policy, settings.task).item())
            found.intended.append(exact_policy.expected_reward(trainer.policy, intended).item())
            found.kl.append(exact_policy.sequence_kl(trainer.policy, trainer.reference, intended).item())

    training.train(settings, keep_groups=False, observe=look)
    return found
