"""A toy language model small enough that everything its training loop estimates can also be enumerated.

`run_grpo(settings)` and `run_dpo(settings)` run the two experiments of chapter 5 and return their records;
`train(settings)` runs any method and returns the trainer with its policy, reference, monitors and cost.
"""

from labsrc.toylm.records import Record
from labsrc.toylm.reward_model import LearnedReward
from labsrc.toylm.settings import (
    DpoSettings,
    GrpoSettings,
    ModelSettings,
    PpoSettings,
    ReinforceSettings,
    RlooSettings,
    StartSettings,
    addition_settings,
)
from labsrc.toylm.tasks import Addition, FirstToken, LengthBonus
from labsrc.toylm.training import evaluate, greedy_reward, new_trainer, run, run_dpo, run_grpo, train

__all__ = [
    "Addition",
    "DpoSettings",
    "FirstToken",
    "GrpoSettings",
    "LearnedReward",
    "LengthBonus",
    "ModelSettings",
    "PpoSettings",
    "Record",
    "ReinforceSettings",
    "RlooSettings",
    "StartSettings",
    "addition_settings",
    "evaluate",
    "greedy_reward",
    "new_trainer",
    "run",
    "run_dpo",
    "run_grpo",
    "train",
]
