"""Climbing a learned reward, with the reward that was meant looked at beside it (chapter 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labsrc import checks, kl
from labsrc.toylm import exact_policy, start, training
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
    intended = _learned(settings).task
    found = Climb([], [], [], [])

    def look(trainer: Trainer) -> None:
        if trainer.steps_done % every == 0:
            found.steps.append(trainer.steps_done)
            found.learned.append(exact_policy.expected_reward(trainer.policy, settings.task).item())
            found.intended.append(exact_policy.expected_reward(trainer.policy, intended).item())
            found.kl.append(exact_policy.sequence_kl(trainer.policy, trainer.reference, intended).item())

    training.train(settings, keep_groups=False, observe=look)
    return found


@dataclass(frozen=True)
class Frontier:
    """At each price β the best policy for the learned reward, in numbers: both rewards and KL(π*‖π_ref) in nats."""

    betas: list[float]
    learned: list[float]
    intended: list[float]
    kl: list[float]


def frontier(settings: TrainingSettings, betas: Sequence[float]) -> Frontier:
    """The policies π_ref·exp(r_learned/β)/Z that no run can beat, with what they earn of the intended reward.

    settings: as for `climb`; betas: each > 0. At its KL each of them has the highest learned reward there is (chapter
    1), averaged over prompts. Raises ValueError for another task, or a β that is not positive.
    """
    task = _learned(settings)
    reference = start.start_policy(settings)
    base = exact_policy.policy_table(reference, task).detach().exp()
    tables = [exact_policy.optimal_table(reference, task, beta=beta) for beta in betas]
    learned, intended = (exact_policy.reward_table(judge) for judge in (task, task.task))
    return Frontier(
        betas=list(betas),
        learned=[(table * learned).sum(-1).mean().item() for table in tables],
        intended=[(table * intended).sum(-1).mean().item() for table in tables],
        kl=[kl.kl_divergence(table, base).mean().item() for table in tables],
    )


def _learned(settings: TrainingSettings) -> LearnedReward:
    if not isinstance(settings.task, LearnedReward):
        raise ValueError(f"task must be a LearnedReward; got {settings.task!r}")
    return settings.task
