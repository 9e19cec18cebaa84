"""A real run of TRL's GRPOTrainer on a model made on the spot, each of its logged numbers recomputed by labsrc.

    python -m labsrc.trl_bridge.tiny_run
    accelerate launch --multi_gpu --num_processes 2 -m labsrc.trl_bridge.tiny_run

`--multi_gpu` is how accelerate is told to start several processes on one machine, on processors too.

The trainer generates, scores, differentiates and logs as it always does. Beside it, labsrc takes the tokens and the
model, and computes the rewards, the advantages, the log-probabilities, the loss and the rest for itself.
"""

from __future__ import annotations

import functools
import math
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labsrc import advantages, kl, masking, policy_gradient
from labsrc.toylm import losses
from labsrc.toylm.settings import GrpoSettings, OnlineSettings
from labsrc.toylm.tasks import FirstToken
from labsrc.trl_bridge import library, stand_in, tiny_llama
from labsrc.trl_bridge.export import export

# What TRL does whatever is asked of it: the sample deviation, and this guard beside it.
TRL_SCALE = {"ddof": 1, "std_eps": 1e-4}

SETTINGS = GrpoSettings(
    task=FirstToken(eos_token=0, max_new_tokens=4, prompts=((1, 3), (2, 5))),
    prompts_per_step=2,
    group_size=8,
    steps=6,
    optimizer="adam",
    lr=0.01,
)


@dataclass(frozen=True)
class TinyRun:
    """logged and ours: a row an optimiser step, the same names; dead_groups: the share of constant groups, by batch.

    before and after: E[r] under the model, exactly.
    """

    logged: list[dict[str, float]]
    ours: list[dict[str, float]]
    largest_advantage_gap: float
    dead_groups: list[float]
    before: float
    after: float

    def largest_gaps(self) -> dict[str, float]:
        """The largest |logged − ours| of each number over all steps."""
        names = {name: None for row in self.ours for name in row}
        pairs = list(zip(self.logged, self.ours, strict=True))
        return {name: max(abs(logged[name] - ours[name]) for logged, ours in pairs if name in ours) for name in names}


def tiny_run(settings: OnlineSettings = SETTINGS) -> TinyRun:
    """Train by TRL what `settings` exports to, on one process or, under `accelerate launch`, on several.

    settings.task: a `FirstToken` with an eos_token; float32 throughout. Raises ValueError as `export` and
    `tiny_llama.save` do.
    """
    if not isinstance(settings.task, FirstToken):
        raise ValueError(f"task must be a FirstToken, whose E[r] is read off the model; got {settings.task!r}")
    keywords = export(settings, processes=int(os.environ.get("WORLD_SIZE", "1"))).keywords
    with (
        tempfile.TemporaryDirectory() as folder,
        stand_in.default_dtype(torch.float32),
        torch.random.fork_rng(),
        _quiet(),
    ):
        trainer = _recording_trainer()(
            settings,
            model=_saved(folder, settings),
            reward_funcs=functools.partial(_scores, settings.task),
            train_dataset=_prompts(settings),
            args=library.load().grpo_config(output_dir=f"{folder}/out", **keywords, **_SURROUNDINGS),
        )
        before = trainer.expected_reward()
        trainer.train()
        logged = [row for row in trainer.state.log_history if "loss" in row]
        after = trainer.expected_reward()
        return TinyRun(logged, trainer.ours, trainer.largest_advantage_gap, trainer.dead_groups, before, after)


# What does not belong to the experiment: where it runs, what it writes and says.
_SURROUNDINGS = {
    "use_cpu": True,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
}


def _saved(folder: str, settings: OnlineSettings) -> str:
    # TRL makes the reference by loading the policy's folder again, so it must be on the disk.
    path = Path(folder) / "model"
    tiny_llama.save(path, settings.task, settings.model)
    return str(path)


def _prompts(settings: OnlineSettings) -> Any:
    from datasets import Dataset

    prompts = settings.task.prompt_tokens.tolist()
    return Dataset.from_dict({"prompt": [tiny_llama.text(prompt) for prompt in prompts]})


def _scores(task: FirstToken, completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [_reward(task, ids) for ids in completion_ids]


def _reward(task: FirstToken, ids: list[int]) -> float:
    tokens = torch.tensor([ids])
    return task.rewards(task.prompt_tokens[:1], tokens, torch.ones_like(tokens, dtype=torch.bool)).item()


def _quiet() -> warnings.catch_warnings:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return warnings.catch_warnings(action="ignore")


@functools.cache
def _recording_trainer() -> type:
    """GRPOTrainer that lets labsrc look at each batch it scores and at each loss it computes."""
    base = library.load().grpo
    from accelerate.utils import gather_object
    from transformers import PrinterCallback

    class RecordingTrainer(base):
        def __init__(self, settings: OnlineSettings, **keywords: Any) -> None:
            super().__init__(**keywords)
            self.remove_callback(PrinterCallback)
            self.settings = settings
            self.ours: list[dict[str, float]] = []
            self.scored: dict[str, float] = {}
            self.largest_advantage_gap = 0.0
            self.dead_groups: list[float] = []

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            completions, mask = output["completion_ids"], output["completion_mask"].bool()
            rows = [row[keep].tolist() for row, keep in zip(completions, mask, strict=True)]
            everyone = gather_object(rows)
            scored, found = scored_batch(self.settings, everyone)
            first = self.accelerator.process_index * len(rows)
            gap = (found.flatten()[first : first + len(rows)] - output["advantages"]).abs().max().item()
            self.largest_advantage_gap = max(self.largest_advantage_gap, gap)
            self.scored = scored
            self.dead_groups.append((found == 0).all(-1).double().mean().item())
            return output

        def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
            with torch.no_grad():
                own = own_numbers(self.settings, self.accelerator.unwrap_model(model), inputs)
            row = _means(gather_object([own]))
            self.ours.append(row | self.scored)
            self.scored = {}  # TRL logs them once, at the first update on a batch
            return super()._compute_loss(model, inputs)

        @torch.no_grad()
        def expected_reward(self) -> float:
            """E[r] of the task, from the model's probabilities of the first token."""
            task = self.settings.task
            logits = self.accelerator.unwrap_model(self.model)(task.prompt_tokens).logits[:, -1]
            return logits.softmax(-1)[:, task.target].mean().item()

    return RecordingTrainer


def scored_batch(settings: OnlineSettings, completions: list[list[int]]) -> tuple[dict[str, float], Tensor]:
    """What TRL logs when it has scored a batch, and its advantages (P, G); completions: P·G, of all processes."""
    rewards = torch.tensor([_reward(settings.task, ids) for ids in completions]).view(-1, settings.group_size)
    function = losses.look_up("advantage", losses.ADVANTAGES, settings.advantage)
    found = function(rewards, **losses.accepted(function, **TRL_SCALE))
    # Where TRL scales by the batch it asks whether the batch is constant, and a constant group goes uncounted.
    scaled_together = (
        rewards.view(1, -1)
        if losses.name_of(losses.ADVANTAGES, settings.advantage) == "batch_standardized"
        else rewards
    )
    scored = {
        "reward": rewards.mean().item(),
        "reward_std": rewards.std().item(),
        "frac_reward_zero_std": advantages.is_constant_group(scaled_together).double().mean().item(),
        "completions/mean_length": sum(len(ids) for ids in completions) / len(completions),
    }
    return scored, found


# A sum, and over how many tokens, sequences or processes it is: so that processes can be put together.
Share = tuple[float, int]


def _means(processes: list[dict[str, Share]]) -> dict[str, float]:
    return {
        name: sum(own[name][0] for own in processes) / sum(own[name][1] for own in processes) for name in processes[0]
    }


def own_numbers(settings: OnlineSettings, model: Any, inputs: dict[str, Tensor]) -> dict[str, Share]:
    """The loss of one process, and what TRL logs beside it, from the tokens and the model.

    inputs: what GRPOTrainer hands its loss. Advantages are taken from there, they are compared elsewhere.
    """
    mask = inputs["completion_mask"].bool()
    logp, entropy = token_logp(model, inputs, temperature=settings.temperature)
    old, ref = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps")
    old = logp if old is None else old
    loss = settings.loss_function(logp, old, ref, inputs["advantages"], mask, **settings.loss_keywords)
    own = {"loss": (loss.item(), 1), "entropy": _over_tokens(entropy, mask)}
    keywords = losses.keyword_defaults(settings.loss_function) | settings.loss_keywords
    log_ratio, counted = masking.keep_valid("logp", logp - old, mask), mask
    if settings.loss_function in losses.SEQUENCE_LEVEL:
        log_ratio = policy_gradient.sequence_log_ratio(log_ratio, mask).unsqueeze(-1)
        counted = torch.ones_like(log_ratio, dtype=torch.bool)  # a sequence counts once, however long it is
    if ref is not None:
        penalty = kl.kl_k3(*(masking.keep_valid("logp", values, mask) for values in (logp, ref)))
        own["kl"] = _over_tokens(
            kl.ratio_weighted(penalty, log_ratio) if keywords["kl_ratio_weighted"] else penalty, mask
        )
    if "clip_low" in keywords:
        radii = {name: keywords[name] for name in ("clip_low", "clip_high")}
        share = policy_gradient.clip_fraction(log_ratio, inputs["advantages"].unsqueeze(-1), counted, **radii)
        count = int(counted.sum())
        own["clip_ratio/low_mean"] = (share.low * count, count)
        own["clip_ratio/high_mean"] = (share.high * count, count)
    return own


def _over_tokens(values: Tensor, mask: Tensor) -> Share:
    return masking.sum_over_tokens(values, mask).sum().item(), int(mask.sum())


def token_logp(model: Any, inputs: dict[str, Tensor], *, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each completion token, and the entropy it was drawn from: (B, T) each, nats."""
    names = ("prompt", "completion")
    tokens = torch.cat([inputs[f"{name}_ids"] for name in names], 1)
    seen = torch.cat([inputs[f"{name}_mask"] for name in names], 1)
    # The logits at a position are those of the token after it.
    first = inputs["prompt_ids"].shape[1] - 1
    logp = (model(input_ids=tokens, attention_mask=seen).logits[:, first:-1] / temperature).log_softmax(-1)
    chosen = logp.gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)
    return chosen, -(logp.exp() * logp).sum(-1)


def main() -> None:
    """Make the run, and print the largest difference of each logged number."""
    run = tiny_run()
    if os.environ.get("RANK", "0") != "0":
        return
    gaps = run.largest_gaps() | {"advantages": run.largest_advantage_gap}
    print(f"processes {os.environ.get('WORLD_SIZE', '1')}, optimiser steps {len(run.logged)}; largest |TRL − labsrc|:")
    for name, gap in gaps.items():
        print(f"{name:24s} {gap:.1e}")
    print(f"E[r] {run.before:.4f} -> {run.after:.4f}")
    if not all(math.isfinite(gap) and gap < 1e-5 for gap in gaps.values()):
        raise SystemExit("labsrc and TRL disagree")


if __name__ == "__main__":
    main()
