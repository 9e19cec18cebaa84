"""Running a method from its settings to a finished run and its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from labsrc import checks
from labsrc.toylm import checkpoint, exact_policy, records, sampling
from labsrc.toylm.model import Decoder
from labsrc.toylm.offline import DpoTrainer
from labsrc.toylm.online import OnlineTrainer, PpoTrainer
from labsrc.toylm.settings import DpoSettings, GrpoSettings, TrainingSettings
from labsrc.toylm.tasks import Task
from labsrc.toylm.trainer import Trainer

TRAINERS: Mapping[str, type[Trainer]] = {
    "grpo": OnlineTrainer,
    "rloo": OnlineTrainer,
    "reinforce": OnlineTrainer,
    "ppo": PpoTrainer,
    "dpo": DpoTrainer,
}


def new_trainer(settings: TrainingSettings) -> Trainer:
    """The trainer of `settings.method`, before its first step."""
    return TRAINERS[settings.method](settings)


def train(
    settings: TrainingSettings,
    *,
    save_to: Path | str | None = None,
    save_every: int = 1,
    keep_groups: bool = True,
    observe: Callable[[Trainer], None] | None = None,
) -> Trainer:
    """Run all steps of `settings` and return the trainer: policy, reference, monitors, groups, cost.

    save_to: a checkpoint file, written atomically before the first step and after every `save_every` steps; if it is
    there already the run goes on from it, and ends as if it had never stopped. keep_groups=False keeps only the
    monitors of each step. observe is called before the first step and after each one. Raises ValueError for a
    checkpoint of other settings, damaged or foreign.
    """
    checks.integer_at_least("save_every", save_every, 1)
    trainer = new_trainer(settings)
    trainer.keep_groups = keep_groups
    if save_to is not None and Path(save_to).exists():
        trainer.load_state(checkpoint.load(save_to, settings=records.settings_to_dict(settings)))
    elif save_to is not None:
        _save(trainer, save_to)
    if observe is not None:
        observe(trainer)
    while not trainer.finished:
        trainer.step()
        if save_to is not None and (trainer.finished or trainer.steps_done % save_every == 0):
            _save(trainer, save_to)
        if observe is not None:
            observe(trainer)
    return trainer


def _save(trainer: Trainer, path: Path | str) -> None:
    checkpoint.save(path, trainer.state(), settings=records.settings_to_dict(trainer.settings))


def run(
    settings: TrainingSettings,
    *,
    save_to: Path | str | None = None,
    save_every: int = 1,
    observe: Callable[[Trainer], None] | None = None,
) -> records.Record:
    """`train`, and the record of it: settings, every step, before and after, cost, environment, sources."""
    return record_of(train(settings, save_to=save_to, save_every=save_every, observe=observe))


def record_of(trainer: Trainer, *, exit_status: int = 0, error: str | None = None) -> records.Record:
    """The record of a run as far as it has come."""
    evaluations = {
        "before": evaluate(trainer.reference, trainer.reference, trainer.settings.task),
        "after": evaluate(trainer.policy, trainer.reference, trainer.settings.task),
    }
    return records.make_record(trainer, **evaluations, exit_status=exit_status, error=error)


def run_grpo(settings: GrpoSettings | None = None) -> records.Record:
    """GRPO from settings to record; without settings, the small experiment of chapter 5."""
    return run(GrpoSettings() if settings is None else settings)


def run_dpo(settings: DpoSettings | None = None) -> records.Record:
    """DPO from settings to record; without settings, the two pairs of chapter 5."""
    return run(DpoSettings() if settings is None else settings)


@torch.no_grad()
def evaluate(policy: Decoder, reference: Decoder, task: Task) -> dict[str, float | None]:
    """Greedy reward over all prompts; for an enumerable task also E[r] and the sequence KL to the reference, exactly.

    For `FirstToken`, expected_reward is the probability of the target. Both are None for a task too large to list.
    """
    enumerable = exact_policy.is_enumerable(task)
    return {
        "greedy_reward": greedy_reward(policy, task),
        "expected_reward": exact_policy.expected_reward(policy, task).item() if enumerable else None,
        "sequence_kl": exact_policy.sequence_kl(policy, reference, task).item() if enumerable else None,
    }


def greedy_reward(policy: Decoder, task: Task) -> float:
    """Mean reward of the most probable token at every step, over all prompts: accuracy, for a 0/1 reward."""
    prompts = task.prompt_tokens
    drawn = sampling.greedy(policy, prompts, max_new_tokens=task.max_new_tokens, eos_token=task.eos_token)
    return task.rewards(prompts, drawn.tokens, drawn.mask).mean().item()
