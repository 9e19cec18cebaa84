"""labsrc against TRL 1.16.0, value and gradient: the losses of a library that many people train with.

TRL's private methods run here on a stand-in that holds the handful of attributes they read, so the version is pinned
exactly. Tensors go in as leaves and their gradients come out: no model, no tokenizer, no network.
"""

import importlib.metadata
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, tensor

from labsrc import advantages, aggregation, grpo, masking, policy_gradient, preference

VERSION = "1.16.0"
# The two libraries do the same sums in another order: some ulps in float64, and 1e-7 each in float32.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
# Where TRL computes n/(n − 1) of whole numbers in float32, whatever the dtype of the rewards.
FLOAT32_FACTOR = 1e-7


@pytest.fixture(scope="module")
def trl() -> SimpleNamespace:
    """The trainers, imported once (some ten seconds), with the hub out of reach."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    pytest.importorskip("trl", reason=f"TRL is not installed: pip install trl=={VERSION} (see requirements.txt)")
    installed = importlib.metadata.version("trl")
    assert installed == VERSION, f"these tests call private methods of TRL {VERSION}; {installed} is installed"
    with warnings.catch_warnings():
        # What TRL and its dependencies deprecate among themselves, and TRL's notice that CPO is experimental.
        warnings.simplefilter("ignore")
        from trl.experimental.cpo import CPOTrainer
        from trl.trainer.dpo_trainer import DPOTrainer
        from trl.trainer.grpo_config import GRPOConfig
        from trl.trainer.grpo_trainer import GRPOTrainer
        from trl.trainer.kto_trainer import KTOTrainer
    return SimpleNamespace(grpo=GRPOTrainer, config=GRPOConfig, dpo=DPOTrainer, cpo=CPOTrainer, kto=KTOTrainer)


class OneProcess:
    """An accelerator with nothing to gather."""

    device, num_processes, process_index = torch.device("cpu"), 1, 0

    def gather(self, value):
        return value

    def gather_for_metrics(self, value):
        return value

    def reduce(self, value, reduction):
        return value


def stand_in(**attributes) -> SimpleNamespace:
    """What all the trainers' loss methods read of a trainer."""
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


def assert_agree(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def gradient(value: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(value, leaf)[0]


# ---------------------------------------------------------------- the GRPO family


def ragged_batch(seed: int, dtype: torch.dtype, *, rows: int = 6, tokens: int = 7) -> dict[str, Tensor]:
    """Three policies some way apart, advantages of both signs, rows of different lengths."""
    generator = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return torch.randn(rows, tokens, dtype=torch.float64, generator=generator)

    logp = -noise().abs()
    lengths = torch.cat([tensor([1, tokens]), torch.randint(1, tokens + 1, (rows - 2,), generator=generator)])
    return {
        "logp": logp.to(dtype),
        "old": (logp + 0.3 * noise()).to(dtype),
        "ref": (logp + 0.3 * noise()).to(dtype),
        "advantages": noise()[:, 0].to(dtype),
        "mask": torch.arange(tokens) < lengths[:, None],
    }


def trl_loss(trl, batch: dict[str, Tensor], loss_type: str, level: str, *, slices: int = 1, items: int = 0, **changed):
    """Loss, gradient on the log-probabilities, and logged metrics, by GRPOTrainer._compute_loss."""
    options = {
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
    } | changed
    leaf = batch["logp"].clone().requires_grad_()
    trainer = stand_in(
        **options,
        args=SimpleNamespace(**options, steps_per_generation=slices),
        current_gradient_accumulation_steps=slices,
        loss_type=loss_type,
        importance_sampling_level=level,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _entropy_bonus_enabled=False,
        get_gamma_weights=trl.grpo.get_gamma_weights,
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
        "num_items_in_batch": tensor(items or int(mask.sum())),
    }
    with default_dtype(leaf.dtype):
        loss = trl.grpo._compute_loss(trainer, None, inputs)
    return loss.detach(), gradient(loss, leaf), trainer._metrics["train"]


def labsrc_loss(function, batch: dict[str, Tensor], **options) -> tuple[Tensor, Tensor]:
    """Loss and gradient by labsrc, with NaN in all the padding."""
    holes = {name: torch.where(batch["mask"], batch[name], math.nan) for name in ("logp", "old", "ref")}
    leaf = holes["logp"].requires_grad_()
    ref = holes["ref"] if options["beta"] else None
    loss = function(leaf, holes["old"], ref, batch["advantages"], batch["mask"], **options)
    return loss.detach(), gradient(loss, leaf)


# labsrc's loss; TRL's loss_type and level; labsrc's options and TRL's names for them. The sequence level gets narrow
# radii, since a geometric mean moves little: here every clip clips some tokens and leaves others.
FAMILY = {
    "grpo": (grpo.grpo_loss, "grpo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "bnpo": (grpo.bnpo_loss, "bnpo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "dapo": (grpo.dapo_loss, "dapo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "dr_grpo": (grpo.dr_grpo_loss, "dr_grpo", "token", {"clip_low": 0.15, "clip_high": 0.25, "max_length": 10}),
    "gspo": (grpo.gspo_loss, "grpo", "sequence", {"clip_low": 0.03, "clip_high": 0.04}),
    "luspo": (grpo.luspo_loss, "luspo", "sequence", {"clip_low": 0.03, "clip_high": 0.04}),
    "cispo": (grpo.cispo_loss, "cispo", "token", {"clip_high": 1.2}),
    "sapo": (grpo.sapo_loss, "sapo", "token", {}),
    "vespo": (grpo.vespo_loss, "vespo", "token", {}),
}
TRL_NAME = {
    "clip_low": "epsilon_low",
    "clip_high": "epsilon_high",
    "max_length": "max_completion_length",
    "temperature_positive": "sapo_temperature_pos",
    "temperature_negative": "sapo_temperature_neg",
    "shape_positive": "vespo_k_pos",
    "rate_positive": "vespo_lambda_pos",
    "shape_negative": "vespo_k_neg",
    "rate_negative": "vespo_lambda_neg",
}


def trl_names(options: dict) -> dict:
    return {TRL_NAME[name]: value for name, value in options.items()}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta, weighted", [(0.0, False), (0.04, False), (0.04, True), (2.0, True)])
@pytest.mark.parametrize("name", FAMILY)
def test_value_and_gradient_agree_with_trl(trl, name, beta, weighted, dtype):
    function, loss_type, level, options = FAMILY[name]
    for seed in range(5):
        batch = ragged_batch(seed, dtype)
        theirs = trl_loss(
            trl, batch, loss_type, level, beta=beta, use_bias_correction_kl=weighted, **trl_names(options)
        )
        ours = labsrc_loss(function, batch, beta=beta, kl_ratio_weighted=weighted, **options)
        assert_agree(ours[0], theirs[0], TOLERANCE[dtype])
        assert_agree(ours[1], theirs[1], TOLERANCE[dtype])
        assert not ours[1][~batch["mask"]].any()


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_the_batches_above_have_clipped_tokens_and_others(name):
    _, _, level, options = FAMILY[name]
    lost = total = 0
    for seed in range(5):
        batch = ragged_batch(seed, torch.float64)
        log_ratio = batch["logp"] - batch["old"]
        if level == "sequence":
            log_ratio = policy_gradient.sequence_log_ratio(log_ratio, batch["mask"])[:, None].expand_as(log_ratio)
        radii = {"clip_low": 0.15, "clip_high": 0.2} | options
        high = radii["clip_high"] if name == "cispo" else 1 + radii["clip_high"]
        past = (log_ratio.exp() > high) | (
            (log_ratio.exp() < 1 - radii["clip_low"]) & (batch["advantages"] < 0)[:, None]
        )
        lost, total = lost + (past & batch["mask"]).sum().item(), total + batch["mask"].sum().item()
    assert 0.1 < lost / total < 0.9


@pytest.mark.parametrize(
    "name, options",
    [
        ("sapo", {"temperature_positive": 0.7, "temperature_negative": 2.3}),
        ("vespo", {"shape_positive": 1.3, "rate_positive": 0.7, "shape_negative": 0.6, "rate_negative": 1.9}),
        ("cispo", {"clip_high": 0.2}),
        ("dr_grpo", {"max_length": 7, "clip_low": 0.1, "clip_high": 0.5}),
    ],
)
def test_the_options_mean_the_same_in_both(trl, name, options):
    function, loss_type, level, _ = FAMILY[name]
    batch = ragged_batch(11, torch.float64)
    theirs = trl_loss(trl, batch, loss_type, level, **trl_names(options))
    ours = labsrc_loss(function, batch, beta=0.0, **options)
    assert_agree(ours[0], theirs[0], 1e-12)
    assert_agree(ours[1], theirs[1], 1e-12)


def test_the_shapes_and_temperatures_have_trl_s_defaults(trl):
    defaults = {field.name: field.default for field in fields(trl.config)}
    named = {TRL_NAME[name]: value for name, value in grpo.vespo_loss.__kwdefaults__.items() if name in TRL_NAME}
    named |= {TRL_NAME[name]: value for name, value in grpo.sapo_loss.__kwdefaults__.items() if name in TRL_NAME}
    assert len(named) == 6
    assert {name: defaults[name] for name in named} == named
    # Where they differ, on purpose: TRL starts without a penalty, and with dapo's mean over tokens.
    assert (defaults["beta"], defaults["epsilon"], defaults["loss_type"]) == (0.0, 0.2, "dapo")


@pytest.mark.parametrize("name", ["dapo", "cispo", "vespo"])
def test_slices_of_a_generation_batch_agree_when_both_know_its_token_count(trl, name):
    function, loss_type, level, options = FAMILY[name]
    batch = ragged_batch(5, torch.float64)
    count = int(batch["mask"].sum())
    for part in (slice(0, 3), slice(3, 6)):
        piece = {key: values[part] for key, values in batch.items()}
        theirs = trl_loss(trl, piece, loss_type, level, slices=2, items=count, beta=0.04, **trl_names(options))
        ours = labsrc_loss(function, piece, beta=0.04, kl_ratio_weighted=True, token_count=count, **options)
        assert_agree(ours[0], theirs[0], 1e-12)
        assert_agree(ours[1], theirs[1], 1e-12)


def test_the_dual_clip_is_trl_s_delta(trl):
    differs_from_plain = 0
    for seed in range(5):
        batch = ragged_batch(seed, torch.float64)
        theirs = trl_loss(trl, batch, "grpo", "token", delta=1.3)
        leaf = batch["logp"].clone().requires_grad_()
        surrogate = policy_gradient.dual_clipped_surrogate(
            leaf - batch["old"], batch["advantages"][:, None], clip_low=0.2, clip_high=0.2, dual_clip=1.3
        )
        ours = -aggregation.mean_of_sequence_means(surrogate, batch["mask"])
        assert_agree(ours.detach(), theirs[0], 1e-12)
        assert_agree(gradient(ours, leaf), theirs[1], 1e-12)
        differs_from_plain += (trl_loss(trl, batch, "grpo", "token")[0] - theirs[0]).abs().item() > 1e-4
    assert differs_from_plain > 1


def test_the_clip_shares_are_those_trl_logs(trl):
    for seed in range(5):
        batch = ragged_batch(seed, torch.float64)
        *_, logged = trl_loss(trl, batch, "grpo", "token", epsilon_low=0.15, epsilon_high=0.25)
        ours = policy_gradient.clip_fraction(
            batch["logp"] - batch["old"],
            batch["advantages"][:, None],
            batch["mask"],
            clip_low=0.15,
            clip_high=0.25,
        )
        # TRL averages them in float32.
        assert ours.low == pytest.approx(logged["clip_ratio/low_mean"][0], abs=FLOAT32_FACTOR)
        assert ours.high == pytest.approx(logged["clip_ratio/high_mean"][0], abs=FLOAT32_FACTOR)
        assert ours.total == pytest.approx(logged["clip_ratio/region_mean"][0], abs=FLOAT32_FACTOR)


# ---------------------------------------------------------------- advantages


def trl_advantages(trl, sources: Tensor, *, scale: str = "group", combine: str = "sum_then_normalize", weights=None):
    """Advantages (P, G) of rewards (S, P, G), by GRPOTrainer._generate_and_score_completions without a model."""
    count, prompts, size = sources.shape
    rows = prompts * size
    generated = ([[1]] * rows, [[2, 3]] * rows, None, ["text"] * rows, None, {}, None, None)
    trainer = stand_in(
        args=SimpleNamespace(
            per_device_train_batch_size=rows,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
        ),
        beta=0.0,
        num_iterations=1,
        num_generations=size,
        scale_rewards=scale,
        multi_objective_aggregation=combine,
        reward_weights=sources.new_ones(count) if weights is None else weights,
        reward_func_names=[f"source {i}" for i in range(count)],
        reward_funcs=[None] * count,
        environment_factories=None,
        environments=None,
        tools=[],
        pad_to_multiple_of=None,
        mask_truncated_completions=False,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _logs=defaultdict(list) | {"rewards": defaultdict(list), "extra": defaultdict(list)},
        _pending_extra_logs={},
        _pending_metrics={},
        _generate=lambda prompts: generated,
        _calculate_rewards=lambda *args: sources.reshape(count, rows).T.clone(),
    )
    output = trl.grpo._generate_and_score_completions(trainer, [{"prompt": "text"}] * rows)
    return output["advantages"].reshape(prompts, size)


def rewards(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# n/(n − 1) has a short binary expansion for groups of 2, 3, 5 and 9, so float32 holds it exactly and nothing is lost.
SIZES = [(3, 1e-12), (5, 1e-12), (9, 1e-12), (4, FLOAT32_FACTOR), (7, FLOAT32_FACTOR), (8, FLOAT32_FACTOR)]


@pytest.mark.parametrize("size, tolerance", SIZES)
def test_the_advantages_of_a_group_are_standardised_by_the_sample_deviation(trl, size, tolerance):
    for seed in range(3):
        table = rewards(seed, 4, size)
        table[1] = 0.3
        ours = advantages.standardized(table, ddof=1)
        # In TRL the equal rewards of the second group keep a residue of rounding, over a guard of 1e-4.
        assert_agree(ours, trl_advantages(trl, table[None]), tolerance)
        assert (advantages.standardized(table, ddof=0) - ours).abs().max() > 0.01


def test_scale_none_is_the_centred_reward(trl):
    table = rewards(1, 4, 7)
    assert_agree(advantages.centered(table), trl_advantages(trl, table[None], scale="none"), 1e-12)


@pytest.mark.parametrize("prompts, size, tolerance", [(3, 3, 1e-12), (13, 5, 1e-12), (4, 7, FLOAT32_FACTOR)])
def test_scale_batch_is_one_deviation_for_all(trl, prompts, size, tolerance):
    table = rewards(2, prompts, size)
    theirs = trl_advantages(trl, table[None], scale="batch")
    assert_agree(advantages.batch_standardized(table, ddof=1), theirs, tolerance)


def test_missing_rewards_leave_the_statistics_and_get_zero(trl):
    nan = math.nan
    table = rewards(3, 6, 5)
    # Left in the groups: 5, 3, 2, 1, 0 and, with the float32 factor 4/3, four.
    table[1, :2] = nan
    table[2, [0, 2, 4]] = nan
    table[3, 1:] = nan
    table[4] = nan
    table[5, 3] = nan
    ours = advantages.standardized_excluding_missing(table, ddof=1)
    theirs = trl_advantages(trl, table[None])
    assert_agree(ours[:5], theirs[:5], 1e-12)
    assert_agree(ours[5], theirs[5], FLOAT32_FACTOR)
    assert not theirs[table.isnan()].any()
    assert not ours[3].any()


@pytest.mark.parametrize("size, tolerance", SIZES[1:4])
def test_rewards_summed_before_they_are_normalised(trl, size, tolerance):
    sources, weights = rewards(4, 3, 4, size), tensor([1.0, 0.3, -2.0], dtype=torch.float64)
    theirs = trl_advantages(trl, sources, weights=weights)
    assert_agree(advantages.sum_then_normalize(sources, weights, ddof=1), theirs, tolerance)


@pytest.mark.parametrize("prompts, size, tolerance", [(3, 3, 1e-12), (13, 5, 1e-12), (4, 8, 2 * FLOAT32_FACTOR)])
def test_rewards_normalised_before_they_are_summed(trl, prompts, size, tolerance):
    # Two factors in float32 here: one for the groups and one for the batch.
    sources, weights = rewards(5, 3, prompts, size), tensor([1.0, 0.3, -2.0], dtype=torch.float64)
    sources[:, 1] = 0.7
    ours = advantages.normalize_then_sum(sources, weights, ddof=1)
    for scale in ("group", "batch", "none"):
        theirs = trl_advantages(trl, sources, weights=weights, combine="normalize_then_sum", scale=scale)
        assert_agree(ours, theirs, tolerance)


def test_a_reward_missing_from_one_source_only_counts_as_zero_in_the_sum(trl):
    sources, weights = rewards(6, 2, 3, 5), tensor([1.0, 0.5], dtype=torch.float64)
    sources[0, 0, 1] = math.nan
    sources[:, 1, :2] = math.nan
    total = (sources * weights[:, None, None]).nansum(0)
    total[sources.isnan().all(0)] = math.nan
    ours = advantages.standardized_excluding_missing(total, ddof=1)
    assert_agree(ours, trl_advantages(trl, sources, weights=weights), 1e-12)


# ---------------------------------------------------------------- preference losses


def pair_batch(seed: int, dtype: torch.dtype, *, pairs: int = 4, tokens: int = 6) -> SimpleNamespace:
    """Token log-probabilities (2·pairs, tokens), chosen rows first; one prompt token stands before the completion."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (2 * pairs, 1), generator=generator)
    logp, ref = (-torch.randn(2, 2 * pairs, tokens, dtype=torch.float64, generator=generator).abs()).to(dtype)
    return SimpleNamespace(logp=logp, ref=ref, mask=torch.arange(tokens) < lengths, pairs=pairs)


def trl_preference_loss(trainer_class, batch: SimpleNamespace, inputs: dict, **attributes) -> tuple[Tensor, Tensor]:
    """Loss and gradient on the tokens, by DPOTrainer or KTOTrainer._compute_loss on a model that answers with them."""
    leaf = batch.logp.clone().requires_grad_()
    zeros = torch.zeros_like(leaf)
    # TRL sums without a mask: its models answer with zeros off the completion.
    log_probs = torch.where(batch.mask, leaf, 0.0)
    outputs = SimpleNamespace(log_probs=log_probs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    trainer = stand_in(precompute_ref_logps=True, _total_train_tokens=0, _tp_size=1, **attributes)
    # The prompt token carries no log-probability: the first one predicts the second token of the row.
    ids = torch.zeros(len(leaf), leaf.shape[1] + 1, dtype=torch.long)
    completion_mask = torch.nn.functional.pad(batch.mask.long(), (1, 0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": completion_mask} | inputs
    loss = trainer_class._compute_loss(trainer, lambda **kwargs: outputs, inputs, False)
    return loss.detach(), gradient(loss, leaf)


def trl_dpo_loss(trl, batch: SimpleNamespace, loss_type: str, beta: float) -> tuple[Tensor, Tensor]:
    chosen, rejected = torch.where(batch.mask, batch.ref, 0.0).sum(-1).chunk(2)
    return trl_preference_loss(
        trl.dpo,
        batch,
        {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected},
        beta=beta,
        loss_types=[loss_type],
        loss_weights=[1.0],
        ld_alpha=None,
        f_divergence_type="reverse_kl",
        use_weighting=False,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta", [0.1, 0.7])
@pytest.mark.parametrize(
    "loss_type, function, mean",
    [
        ("sigmoid", preference.dpo_loss, False),
        # TRL divides by the length here, as the authors of IPO confirmed: these losses take means.
        ("ipo", preference.ipo_loss, True),
        ("sigmoid_norm", preference.dpo_loss, True),
    ],
)
def test_the_preference_losses_agree(trl, loss_type, function, mean, beta, dtype):
    for seed in range(5):
        batch = pair_batch(seed, dtype)
        leaf = torch.where(batch.mask, batch.logp, math.nan).requires_grad_()
        reduce = policy_gradient.sequence_log_ratio if mean else masking.sum_over_tokens
        columns = [*reduce(leaf, batch.mask).chunk(2), *reduce(batch.ref, batch.mask).chunk(2)]
        ours = function(*columns, beta=beta).mean()
        theirs = trl_dpo_loss(trl, batch, loss_type, beta)
        assert_agree(ours.detach(), theirs[0], TOLERANCE[dtype])
        assert_agree(gradient(ours, leaf), theirs[1], TOLERANCE[dtype])


def trl_cpo_losses(trl, chosen: Tensor, rejected: Tensor, **attributes) -> Tensor:
    defaults = {"alpha": 0.0, "simpo_gamma": 0.0, "label_smoothing": 0.0}
    return trl.cpo.cpo_loss(stand_in(**(defaults | attributes)), chosen, rejected)[0]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_simpo_agrees_with_the_contrastive_trainer(trl, dtype):
    for seed, margin in enumerate((0.0, 0.5, 1.6)):
        batch = pair_batch(seed, dtype)
        leaves = [column.clone().requires_grad_() for column in batch.logp.mean(-1).chunk(2)]
        theirs = trl_cpo_losses(trl, *leaves, loss_type="simpo", beta=2.5, simpo_gamma=margin)
        ours = preference.simpo_loss(*leaves, beta=2.5, margin=margin)
        assert_agree(ours, theirs, TOLERANCE[dtype])
        for gradients in zip(*(torch.autograd.grad(loss.sum(), leaves) for loss in (ours, theirs)), strict=True):
            assert_agree(*gradients, TOLERANCE[dtype])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_label_smoothing_agrees_with_the_contrastive_trainer(trl, smoothing):
    # DPOTrainer's sigmoid takes no smoothing. CPO has no reference: there, log ratios stand for log-probabilities.
    batch = pair_batch(3, torch.float64)
    sums = [masking.sum_over_tokens(values, batch.mask) for values in (batch.logp, batch.ref)]
    leaves = [column.clone().requires_grad_() for column in sums[0].chunk(2)]
    references = sums[1].chunk(2)
    ratios = [leaf - reference for leaf, reference in zip(leaves, references, strict=True)]
    theirs = trl_cpo_losses(trl, *ratios, loss_type="sigmoid", beta=0.3, label_smoothing=smoothing)
    ours = preference.smoothed_dpo_loss(*leaves, *references, beta=0.3, label_smoothing=smoothing)
    assert_agree(ours, theirs, 1e-12)
    for gradients in zip(*(torch.autograd.grad(loss.sum(), leaves) for loss in (ours, theirs)), strict=True):
        assert_agree(*gradients, 1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kl_sign", [1.0, -1.0])
def test_kto_agrees_with_the_kl_estimate_held_constant(trl, kl_sign, dtype):
    for seed in range(3):
        batch = pair_batch(seed, dtype)
        desirable = tensor([True, False, True, True, False, False, True, False])
        # A negative estimate is raised to zero in TRL; labsrc asks its caller for one that is not negative.
        estimate = kl_sign * rewards(seed, 8).abs().to(dtype)
        leaf = torch.where(batch.mask, batch.logp, math.nan).requires_grad_()
        logp, logp_ref = (masking.sum_over_tokens(values, batch.mask) for values in (leaf, batch.ref))
        theirs = trl_preference_loss(
            trl.kto,
            batch,
            {"label": desirable, "ref_logps": logp_ref, "ref_KL_logps": torch.zeros_like(estimate)},
            beta=0.2,
            loss_type="kto",
            calculate_KL=True,
            desirable_weight=1.5,
            undesirable_weight=0.8,
            _compute_kl_logps=lambda *args, estimate=estimate: estimate,
        )
        ours = preference.kto_loss(
            logp,
            logp_ref,
            desirable,
            beta=0.2,
            kl_reference=max(estimate.mean().item(), 0.0),
            desirable_weight=1.5,
            undesirable_weight=0.8,
        ).mean()
        assert_agree(ours.detach(), theirs[0], TOLERANCE[dtype])
        assert_agree(gradient(ours, leaf), theirs[1], TOLERANCE[dtype])
