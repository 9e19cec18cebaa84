"""labsrc against TRL 1.16.0, value and gradient: the losses of a library that many people train with.

TRL's private methods run here on a stand-in that holds the handful of attributes they read, so the version is pinned
exactly. Tensors go in as leaves and their gradients come out: no model, no tokenizer, no network.
"""

import math
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, tensor

from labsrc import advantages, aggregation, engine_mismatch, grpo, masking, policy_gradient, preference
from labsrc.trl_bridge import agreement, library, stand_in
from labsrc.trl_bridge.agreement import FAMILY, TOLERANCE, TRL_NAME, pair_batch, ragged_batch, trl_names
from labsrc.trl_bridge.stand_in import gradient

# Where TRL computes n/(n − 1) of whole numbers in float32, whatever the dtype of the rewards.
FLOAT32_FACTOR = 1e-7


@pytest.fixture(scope="module")
def trl() -> SimpleNamespace:
    """The trainers, imported once (some ten seconds), with the hub out of reach."""
    pytest.importorskip("trl", reason=f"TRL is not installed: pip install trl=={library.VERSION}")
    return library.load()


def assert_agree(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_another_version_of_trl_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.17.0")
    with pytest.raises(ValueError, match=r"version 1\.16\.0, .*; got 1\.17\.0"):
        library.load.__wrapped__()


# ---------------------------------------------------------------- the GRPO family


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta, weighted", [(0.0, False), (0.04, False), (0.04, True), (2.0, True)])
@pytest.mark.parametrize("name", FAMILY)
def test_value_and_gradient_agree_with_trl(trl, name, beta, weighted, dtype):
    for seed in range(5):
        batch = ragged_batch(seed, dtype)
        ours, theirs = agreement.both_losses(name, batch, beta=beta, kl_ratio_weighted=weighted)
        assert_agree(ours[0], theirs[0], TOLERANCE[dtype])
        assert_agree(ours[1], theirs[1], TOLERANCE[dtype])
        assert not ours[1][~batch["mask"]].any()


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_the_batches_above_have_clipped_tokens_and_others(name):
    level, options = FAMILY[name].level, FAMILY[name].options
    lost = total = 0
    for seed in range(5):
        batch = ragged_batch(seed)
        log_ratio = batch["logp"] - batch["old"]
        if level == "sequence":
            log_ratio = policy_gradient.sequence_log_ratio(log_ratio, batch["mask"])[:, None].expand_as(log_ratio)
        radii = {"clip_low": 0.15, "clip_high": 0.2} | dict(options)
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
    twin, batch = FAMILY[name], ragged_batch(11)
    theirs = stand_in.grpo_loss(batch, twin.loss_type, twin.level, **trl_names(options))
    ours = agreement.labsrc_loss(twin.loss, batch, beta=0.0, **options)
    assert_agree(ours[0], theirs[0], 1e-12)
    assert_agree(ours[1], theirs[1], 1e-12)


def test_the_shapes_and_temperatures_have_trl_s_defaults(trl):
    defaults = {field.name: field.default for field in fields(trl.grpo_config)}
    named = {TRL_NAME[name]: value for name, value in grpo.vespo_loss.__kwdefaults__.items() if name in TRL_NAME}
    named |= {TRL_NAME[name]: value for name, value in grpo.sapo_loss.__kwdefaults__.items() if name in TRL_NAME}
    assert len(named) == 6
    assert {name: defaults[name] for name in named} == named
    # Where they differ, on purpose: TRL starts without a penalty, and with dapo's mean over tokens.
    assert (defaults["beta"], defaults["epsilon"], defaults["loss_type"]) == (0.0, 0.2, "dapo")


@pytest.mark.parametrize("name", ["dapo", "cispo", "vespo"])
def test_slices_of_a_generation_batch_agree_when_both_know_its_token_count(trl, name):
    twin, batch = FAMILY[name], ragged_batch(5)
    count = int(batch["mask"].sum())
    for part in (slice(0, 3), slice(3, 6)):
        piece = {key: values[part] for key, values in batch.items()}
        changed = {"beta": 0.04} | trl_names(twin.options)
        theirs = stand_in.grpo_loss(piece, twin.loss_type, twin.level, slices=2, items=count, **changed)
        options = {"kl_ratio_weighted": True, "token_count": count} | dict(twin.options)
        ours = agreement.labsrc_loss(twin.loss, piece, beta=0.04, **options)
        assert_agree(ours[0], theirs[0], 1e-12)
        assert_agree(ours[1], theirs[1], 1e-12)


def test_the_dual_clip_is_trl_s_delta(trl):
    differs_from_plain = 0
    for seed in range(5):
        batch = ragged_batch(seed)
        theirs = stand_in.grpo_loss(batch, "grpo", "token", delta=1.3)
        leaf = batch["logp"].clone().requires_grad_()
        surrogate = policy_gradient.dual_clipped_surrogate(
            leaf - batch["old"], batch["advantages"][:, None], clip_low=0.2, clip_high=0.2, dual_clip=1.3
        )
        ours = -aggregation.mean_of_sequence_means(surrogate, batch["mask"])
        assert_agree(ours.detach(), theirs[0], 1e-12)
        assert_agree(gradient(ours, leaf), theirs[1], 1e-12)
        differs_from_plain += (stand_in.grpo_loss(batch, "grpo", "token")[0] - theirs[0]).abs().item() > 1e-4
    assert differs_from_plain > 1


def test_the_clip_shares_are_those_trl_logs(trl):
    for seed in range(5):
        batch = ragged_batch(seed)
        *_, logged = stand_in.grpo_loss(batch, "grpo", "token", epsilon_low=0.15, epsilon_high=0.25)
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
        assert_agree(ours, stand_in.advantages(table[None]), tolerance)
        assert (advantages.standardized(table, ddof=0) - ours).abs().max() > 0.01


def test_scale_none_is_the_centred_reward(trl):
    table = rewards(1, 4, 7)
    assert_agree(advantages.centered(table), stand_in.advantages(table[None], scale="none"), 1e-12)


@pytest.mark.parametrize("prompts, size, tolerance", [(3, 3, 1e-12), (13, 5, 1e-12), (4, 7, FLOAT32_FACTOR)])
def test_scale_batch_is_one_deviation_for_all(trl, prompts, size, tolerance):
    table = rewards(2, prompts, size)
    theirs = stand_in.advantages(table[None], scale="batch")
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
    theirs = stand_in.advantages(table[None])
    assert_agree(ours[:5], theirs[:5], 1e-12)
    assert_agree(ours[5], theirs[5], FLOAT32_FACTOR)
    assert not theirs[table.isnan()].any()
    assert not ours[3].any()


@pytest.mark.parametrize("size, tolerance", SIZES[1:4])
def test_rewards_summed_before_they_are_normalised(trl, size, tolerance):
    sources, weights = rewards(4, 3, 4, size), tensor([1.0, 0.3, -2.0], dtype=torch.float64)
    theirs = stand_in.advantages(sources, weights=weights)
    assert_agree(advantages.sum_then_normalize(sources, weights, ddof=1), theirs, tolerance)


@pytest.mark.parametrize("prompts, size, tolerance", [(3, 3, 1e-12), (13, 5, 1e-12), (4, 8, 2 * FLOAT32_FACTOR)])
def test_rewards_normalised_before_they_are_summed(trl, prompts, size, tolerance):
    # Two factors in float32 here: one for the groups and one for the batch.
    sources, weights = rewards(5, 3, prompts, size), tensor([1.0, 0.3, -2.0], dtype=torch.float64)
    sources[:, 1] = 0.7
    ours = advantages.normalize_then_sum(sources, weights, ddof=1)
    for scale in ("group", "batch", "none"):
        theirs = stand_in.advantages(sources, weights=weights, combine="normalize_then_sum", scale=scale)
        assert_agree(ours, theirs, tolerance)


def test_a_reward_missing_from_one_source_only_counts_as_zero_in_the_sum(trl):
    sources, weights = rewards(6, 2, 3, 5), tensor([1.0, 0.5], dtype=torch.float64)
    sources[0, 0, 1] = math.nan
    sources[:, 1, :2] = math.nan
    total = (sources * weights[:, None, None]).nansum(0)
    total[sources.isnan().all(0)] = math.nan
    ours = advantages.standardized_excluding_missing(total, ddof=1)
    assert_agree(ours, stand_in.advantages(sources, weights=weights), 1e-12)


# ---------------------------------------------------------------- preference losses


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta", [0.1, 0.7])
@pytest.mark.parametrize("name", agreement.PAIRS)
def test_the_preference_losses_agree(trl, name, beta, dtype):
    for seed in range(5):
        batch = pair_batch(seed, dtype)
        ours = agreement.labsrc_pair_loss(name, batch, beta=beta)
        theirs = stand_in.dpo_loss(batch, agreement.PAIRS[name][1], beta)
        assert_agree(ours[0], theirs[0], TOLERANCE[dtype])
        assert_agree(ours[1], theirs[1], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_simpo_agrees_with_the_contrastive_trainer(trl, dtype):
    for seed, margin in enumerate((0.0, 0.5, 1.6)):
        batch = pair_batch(seed, dtype)
        leaves = [column.clone().requires_grad_() for column in batch.logp.mean(-1).chunk(2)]
        theirs = stand_in.cpo_losses(*leaves, loss_type="simpo", beta=2.5, simpo_gamma=margin)
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
    theirs = stand_in.cpo_losses(*ratios, loss_type="sigmoid", beta=0.3, label_smoothing=smoothing)
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
        theirs = stand_in.preference_loss(
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


# ---------------------------------------------------------------- engine and trainer


def mismatched(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of trainer and engine, far enough apart that each bound below is passed, and their mask."""
    batch = ragged_batch(seed)
    return batch["logp"], batch["old"], batch["mask"]


@pytest.mark.parametrize("low, high", [(None, 1.3), (0.8, 1.3), (0.8, None)])
@pytest.mark.parametrize("mode", engine_mismatch.MODES)
@pytest.mark.parametrize("level", engine_mismatch.LEVELS)
def test_the_engine_s_correction_agrees(trl, level, mode, low, high):
    for seed in range(5):
        logp, logp_engine, mask = mismatched(seed)
        options = {"mode": f"{level}_{mode}", "clip_min": low, "clip_max": high}
        theirs = stand_in.engine_correction(logp, logp_engine, mask, **options)
        holes = [torch.where(mask, values, math.nan) for values in (logp, logp_engine)]
        ours = engine_mismatch.correction(*holes, mask, level=level, mode=mode, low=low, high=high)
        assert_agree(ours, theirs, 1e-12)


def test_a_corrected_loss_is_trl_s(trl):
    batch = ragged_batch(2)
    weight = engine_mismatch.correction(batch["logp"], batch["old"], batch["mask"], high=1.2)
    theirs = stand_in.grpo_loss(batch, "bnpo", "token", correction=weight)
    leaf = batch["logp"].clone().requires_grad_()
    surrogate = policy_gradient.clipped_surrogate(
        leaf - batch["old"], batch["advantages"][:, None], clip_low=0.2, clip_high=0.2
    )
    ours = -aggregation.mean_over_tokens(weight * surrogate, batch["mask"])
    assert_agree(ours.detach(), theirs[0], 1e-12)
    assert_agree(gradient(ours, leaf), theirs[1], 1e-12)
