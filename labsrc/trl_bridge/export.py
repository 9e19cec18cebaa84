"""A setting of labsrc as the keywords of TRL's GRPOConfig, so that the same experiment runs on a large model.

What has no keyword is not passed over: it is refused, or listed as a difference that stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labsrc import checks
from labsrc.toylm import losses
from labsrc.toylm.settings import OnlineSettings
from labsrc.trl_bridge import defaults, library
from labsrc.trl_bridge.agreement import FAMILY, TRL_NAME

# labsrc's loss and advantage, and the values of loss_type, importance_sampling_level and scale_rewards.
TWINS = {twin.loss: twin for twin in FAMILY.values()}
SCALES = {"standardized": "group", "batch_standardized": "batch", "centered": "none"}

# GRPOConfig's names: those the trainer uses after its set-up, one of them apart.
CONFIG_NAME = TRL_NAME | {"clip_low": "epsilon"}

OPTIMIZERS = {"sgd": "sgd", "adam": "adamw_torch"}  # AdamW without weight decay is Adam


@dataclass(frozen=True)
class Export:
    """Keywords for GRPOConfig, and what the run will do otherwise than labsrc's, a sentence each."""

    keywords: dict[str, Any]
    differences: tuple[str, ...]

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The keywords that are not GRPOConfig's defaults: name → (its default, the value here)."""
        known = defaults.field_defaults(library.load().grpo_config)
        return {name: (known[name], value) for name, value in self.keywords.items() if known[name] != value}


def export(settings: OnlineSettings, *, processes: int = 1) -> Export:
    """GRPOConfig's keywords for the experiment of `settings`, on `processes` processes together.

    The prompts, the reward and the model are the reader's to give. Raises ValueError for what TRL 1.16.0 has no
    keyword for: a loss or an advantage it does not know, a KL in the reward, a batch that processes cannot share.
    """
    checks.integer_at_least("processes", processes, 1)
    keywords = {
        **_loss_keywords(settings),
        "scale_rewards": _scale(settings),
        **_batch_keywords(settings, processes),
        "max_completion_length": settings.task.max_new_tokens,
        "temperature": settings.temperature,
        **_descent_keywords(settings),
    }
    return Export(keywords, tuple(_differences(settings)))


def _loss_keywords(settings: OnlineSettings) -> dict[str, Any]:
    twin = TWINS.get(settings.loss_function)
    if twin is None:
        raise ValueError(f"loss must be one that TRL knows too, of {sorted(FAMILY)}; got {settings.loss_name}")
    if settings.kl_in_reward and settings.beta > 0:
        raise ValueError(f"beta must be 0 with kl_in_reward=True, TRL has the KL in its loss; got {settings.beta!r}")
    options = losses.keyword_defaults(settings.loss_function) | settings.loss_keywords
    if options.pop("max_length", settings.task.max_new_tokens) != settings.task.max_new_tokens:
        wanted = f"the task's {settings.task.max_new_tokens}, TRL divides by max_completion_length"
        raise ValueError(f"max_length must be {wanted}; got {settings.loss_keywords['max_length']!r}")
    options.pop("token_count", None)  # TRL counts the generation batch itself
    return {
        "loss_type": twin.loss_type,
        "importance_sampling_level": twin.level,
        "beta": options.pop("beta"),
        "use_bias_correction_kl": options.pop("kl_ratio_weighted"),
    } | {CONFIG_NAME[name]: value for name, value in options.items()}


def _scale(settings: OnlineSettings) -> str:
    name = losses.name_of(losses.ADVANTAGES, settings.advantage)
    if settings.method == "ppo" or name not in SCALES:
        found = "a critic" if settings.method == "ppo" else name
        raise ValueError(f"advantage must be one that TRL knows too, of {sorted(SCALES)}; got {found}")
    return SCALES[name]


def _batch_keywords(settings: OnlineSettings, processes: int) -> dict[str, Any]:
    completions = settings.prompts_per_step * settings.group_size
    if completions % processes:
        raise ValueError(f"processes must divide the {completions} completions of a step; got {processes!r}")
    return {
        "num_generations": settings.group_size,
        # TRL counts completions here, not prompts, and each process holds its share.
        "per_device_train_batch_size": completions // processes,
        "gradient_accumulation_steps": 1,
        "num_iterations": settings.inner_updates,
        "max_steps": settings.steps * settings.inner_updates,  # optimiser steps
    }


def _descent_keywords(settings: OnlineSettings) -> dict[str, Any]:
    return {
        "optim": OPTIMIZERS[settings.optimizer],
        "learning_rate": settings.lr,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,  # none: labsrc clips no gradient
        "disable_dropout": True,
        "bf16": False,
        "seed": settings.seed,
    }


def _differences(settings: OnlineSettings) -> list[str]:
    found = ["every random draw is another one, although the seed has the same number"]
    scale = _scale(settings)
    scaled = scale != "none"
    if scaled and settings.ddof != 1:
        count = settings.group_size * (settings.prompts_per_step if scale == "batch" else 1)
        smaller = (1 - 1 / count) ** 0.5
        found.append(f"TRL divides by the sample deviation: advantages {smaller:.4f} times as large")
    if scaled and settings.std_eps != 1e-4:
        found.append(f"TRL adds 1e-4 to the deviation, not {settings.std_eps:g}")
    if settings.model.dtype != "float32":
        found.append(f"a model that TRL loads is float32 or bfloat16, not {settings.model.dtype}")
    return found
