"""Importing TRL: once, offline, and only the version whose private methods are known."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import warnings
from types import SimpleNamespace

VERSION = "1.16.0"


@functools.cache
def load() -> SimpleNamespace:
    """TRL's trainers and configurations: grpo, grpo_config, dpo, dpo_config, cpo, kto. Takes some ten seconds once.

    Raises ValueError for another version than `VERSION`, and ModuleNotFoundError without TRL.
    """
    installed = importlib.metadata.version("trl")
    if installed != VERSION:
        raise ValueError(f"trl must be version {VERSION}, whose private methods are called here; got {installed}")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    with warnings.catch_warnings():
        # What TRL and its dependencies deprecate among themselves, and its notice that a trainer is experimental.
        warnings.simplefilter("ignore")
        from trl.experimental.cpo import CPOTrainer
        from trl.trainer.dpo_config import DPOConfig
        from trl.trainer.dpo_trainer import DPOTrainer
        from trl.trainer.grpo_config import GRPOConfig
        from trl.trainer.grpo_trainer import GRPOTrainer
        from trl.trainer.kto_trainer import KTOTrainer
    return SimpleNamespace(
        grpo=GRPOTrainer,
        grpo_config=GRPOConfig,
        dpo=DPOTrainer,
        dpo_config=DPOConfig,
        cpo=CPOTrainer,
        kto=KTOTrainer,
    )
