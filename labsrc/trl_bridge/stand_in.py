"""TRL's loss methods called on a stand-in that holds the handful of attributes they read.

Token log-probabilities go in as a leaf, the loss and its gradient come out: no model, no tokenizer, no network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from labsrc.trl_bridge import library

# What GRPOTrainer._compute_loss reads of its configuration, and the values GRPOConfig gives it, ε_high apart: it is
# ε there unless set, and this method is called after that has been done.
GRPO_OPTIONS = {
    "beta": 0.0,
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "use_bias_correction_kl": True,
    "delta": None,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0,
    "max_completion_length": 10,
    "use_vllm": False,
    "vllm_importance_sampling_correction": False,
}


class OneProcess:
    """An accelerator with nothing to gather."""

    device, num_processes, process_index = torch.device("cpu"), 1, 0

    def gather(self, value: Any) -> Any:
        """What one process holds is everything."""
        return value

    def gather_for_metrics(self, value: Any) -> Any:
        """As `gather`."""
        return value

    def reduce(self, value: Any, reduction: str) -> Any:
        """The sum or mean over one process."""
        return value


def stand_in(**attributes: Any) -> SimpleNamespace:
    """What all the trainers' methods read of a trainer, and `attributes`."""
    model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    metrics = defaultdict(lambda: defaultdict(list))
    common = {"model": model, "accelerator": OneProcess(), "aux_loss_enabled": False, "_metrics": metrics}
    return SimpleNamespace(**(common | attributes))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """TRL chooses constants with torch.where on two Python numbers, which takes the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def gradient(value: Tensor, leaf: Tensor) -> Tensor:
    """∂value/∂leaf, in the shape of leaf."""
    return torch.autograd.grad(value, leaf)[0]


@torch.enable_grad()
def grpo_loss(
    batch: Mapping[str, Tensor],
    loss_type: str,
    level: str,
    *,
    slices: int = 1,
    items: int = 0,
    correction: Tensor | None = None,
    **changed: Any,
) -> tuple[Tensor, Tensor, Mapping[str, list[float]]]:
    """Loss, gradient on logp (B, T), and logged metrics, by `GRPOTrainer._compute_loss`.

    batch: logp, old, ref (B, T) in nats, advantages (B,), mask (B, T); loss_type and level as GRPOConfig calls them;
    slices, items: the number of slices of the generation batch and its valid tokens, when this is a slice;
    correction: the engine's importance weights, (B, T) or (B, 1); changed: entries of `GRPO_OPTIONS`.
    """
    options = GRPO_OPTIONS | changed
    if correction is not None:
        options |= {"use_vllm": True, "vllm_importance_sampling_correction": True}
    leaf = batch["logp"].detach().clone().requires_grad_()
    trainer = stand_in(
        **options,
        args=SimpleNamespace(**options, steps_per_generation=slices),
        current_gradient_accumulation_steps=slices,
        loss_type=loss_type,
        importance_sampling_level=level,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        _entropy_bonus_enabled=False,
        get_gamma_weights=library.load().grpo.get_gamma_weights,
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (leaf, torch.zeros_like(leaf), None),
    )
    mask = batch["mask"].long()
    inputs = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
        "completion_ids": torch.zeros_like(mask),
        "completion_mask": mask,
        "advantages": batch["advantages"],
        "old_per_token_logps": batch["old"],
        "ref_per_token_logps": batch["ref"],
        "num_items_in_batch": torch.tensor(items or int(mask.sum())),
    }
    if correction is not None:
        inputs["importance_sampling_ratio"] = correction
    with default_dtype(leaf.dtype):
        loss = library.load().grpo._compute_loss(trainer, None, inputs)
    return loss.detach(), gradient(loss, leaf), trainer._metrics["train"]


def advantages(
    sources: Tensor, *, scale: str = "group", combine: str = "sum_then_normalize", weights: Tensor | None = None
) -> Tensor:
    """Advantages (P, G) of rewards (S, P, G) from S scorers, by `GRPOTrainer._generate_and_score_completions`.

    scale, combine: scale_rewards and multi_objective_aggregation of GRPOConfig; weights (S,), ones by default.
    """
    _, prompts, size = sources.shape
    trainer = _scoring_trainer(sources, scale=scale, combine=combine, weights=weights)
    rows = [{"prompt": "text"}] * (prompts * size)
    output = library.load().grpo._generate_and_score_completions(trainer, rows)
    return output["advantages"].reshape(prompts, size)


def engine_correction(
    logp: Tensor, logp_engine: Tensor, mask: Tensor, *, mode: str, clip_min: float | None, clip_max: float | None
) -> Tensor:
    """The importance weights (B, T) or (B, 1) that `GRPOTrainer._generate_and_score_completions` gives for an engine.

    logp, logp_engine (B, T): nats, of the trainer's policy and of the engine that sampled; mode, clip_min, clip_max:
    vllm_importance_sampling_mode and its bounds. One row of the mask must be full.
    """
    tokens = [[2] * int(length) for length in mask.sum(-1)]
    engine = [row[: len(ids)].tolist() for row, ids in zip(logp_engine, tokens, strict=True)]
    trainer = _scoring_trainer(
        logp.new_zeros(1, 1, len(logp)),
        use_vllm=True,
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=clip_min,
        vllm_importance_sampling_clip_max=clip_max,
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (torch.where(mask, logp, 0.0), None, None),
        _generate=lambda prompts: ([[1]] * len(logp), tokens, None, ["text"] * len(logp), engine, {}, None, None),
    )
    with default_dtype(logp.dtype):
        output = library.load().grpo._generate_and_score_completions(trainer, [{"prompt": "text"}] * len(logp))
    return output["importance_sampling_ratio"]


def _scoring_trainer(
    sources: Tensor,
    *,
    scale: str = "group",
    combine: str = "sum_then_normalize",
    weights: Tensor | None = None,
    **changed: Any,
) -> SimpleNamespace:
    """A trainer whose generation and reward calls answer with `sources` (S, P, G)."""
    count, prompts, size = sources.shape
    rows = prompts * size
    generated = ([[1]] * rows, [[2, 3]] * rows, None, ["text"] * rows, None, {}, None, None)
    attributes = {
        "args": SimpleNamespace(
            per_device_train_batch_size=rows,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
        ),
        "beta": 0.0,
        "num_iterations": 1,
        "num_generations": size,
        "scale_rewards": scale,
        "multi_objective_aggregation": combine,
        "reward_weights": sources.new_ones(count) if weights is None else weights,
        "reward_func_names": [f"source {i}" for i in range(count)],
        "reward_funcs": [None] * count,
        "environment_factories": None,
        "environments": None,
        "tools": [],
        "pad_to_multiple_of": None,
        "mask_truncated_completions": False,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "_logs": defaultdict(list) | {"rewards": defaultdict(list), "extra": defaultdict(list)},
        "_pending_extra_logs": {},
        "_pending_metrics": {},
        "_generate": lambda prompts: generated,
        "_calculate_rewards": lambda *args: sources.reshape(count, rows).T.clone(),
    }
    return stand_in(**(attributes | changed))


@torch.enable_grad()
def preference_loss(
    trainer_class: type, batch: SimpleNamespace, inputs: Mapping[str, Any], **attributes: Any
) -> tuple[Tensor, Tensor]:
    """Loss and gradient on the tokens, by `_compute_loss` of DPOTrainer or KTOTrainer on a model that answers so.

    batch: logp and mask (2·pairs, T), as `agreement.pair_batch` makes them; inputs: what the method reads besides the
    tokens; attributes: what it reads of the trainer.
    """
    leaf = batch.logp.detach().clone().requires_grad_()
    zeros = torch.zeros_like(leaf)
    # TRL sums without a mask: its models answer with zeros off the completion.
    log_probs = torch.where(batch.mask, leaf, 0.0)
    outputs = SimpleNamespace(log_probs=log_probs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    trainer = stand_in(precompute_ref_logps=True, _total_train_tokens=0, _tp_size=1, **attributes)
    # The prompt token carries no log-probability: the first one predicts the second token of the row.
    ids = torch.zeros(len(leaf), leaf.shape[1] + 1, dtype=torch.long)
    completion_mask = torch.nn.functional.pad(batch.mask.long(), (1, 0))
    common = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": completion_mask}
    loss = trainer_class._compute_loss(trainer, lambda **kwargs: outputs, common | dict(inputs), False)
    return loss.detach(), gradient(loss, leaf)


def dpo_loss(batch: SimpleNamespace, loss_type: str, beta: float) -> tuple[Tensor, Tensor]:
    """Loss and gradient by DPOTrainer: loss_type as DPOConfig calls it, chosen rows first in the batch."""
    chosen, rejected = torch.where(batch.mask, batch.ref, 0.0).sum(-1).chunk(2)
    return preference_loss(
        library.load().dpo,
        batch,
        {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected},
        beta=beta,
        loss_types=[loss_type],
        loss_weights=[1.0],
        ld_alpha=None,
        f_divergence_type="reverse_kl",
        use_weighting=False,
    )


def cpo_losses(chosen: Tensor, rejected: Tensor, **attributes: Any) -> Tensor:
    """CPOTrainer's loss of each pair (N,), from log-probabilities (N,): loss_type "simpo", or "sigmoid" smoothed."""
    defaults = {"alpha": 0.0, "simpo_gamma": 0.0, "label_smoothing": 0.0}
    return library.load().cpo.cpo_loss(stand_in(**(defaults | attributes)), chosen, rejected)[0]
