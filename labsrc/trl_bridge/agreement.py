"""labsrc and TRL on the same ragged random batches: value and gradient, loss by loss.

A batch of `ragged_batch` holds three policies some way apart, advantages of both signs and rows of different lengths.
labsrc gets NaN in all the padding, so that a leak would show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from labsrc import grpo, masking, policy_gradient, preference
from labsrc.trl_bridge import stand_in

# The two libraries do the same sums in another order: some ulps in float64, and 1e-7 each in float32.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}


@dataclass(frozen=True)
class Twin:
    """One of labsrc's losses, what TRL calls it, and the options it is compared with."""

    loss: Callable[..., Tensor]
    loss_type: str
    level: str
    options: Mapping[str, float]


# The sequence level gets narrow radii, since a geometric mean moves little: every clip clips some tokens and leaves
# others.
FAMILY: Mapping[str, Twin] = {
    "grpo": Twin(grpo.grpo_loss, "grpo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "bnpo": Twin(grpo.bnpo_loss, "bnpo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "dapo": Twin(grpo.dapo_loss, "dapo", "token", {"clip_low": 0.15, "clip_high": 0.25}),
    "dr_grpo": Twin(grpo.dr_grpo_loss, "dr_grpo", "token", {"clip_low": 0.15, "clip_high": 0.25, "max_length": 10}),
    "gspo": Twin(grpo.gspo_loss, "grpo", "sequence", {"clip_low": 0.03, "clip_high": 0.04}),
    "luspo": Twin(grpo.luspo_loss, "luspo", "sequence", {"clip_low": 0.03, "clip_high": 0.04}),
    "cispo": Twin(grpo.cispo_loss, "cispo", "token", {"clip_high": 1.2}),
    "sapo": Twin(grpo.sapo_loss, "sapo", "token", {}),
    "vespo": Twin(grpo.vespo_loss, "vespo", "token", {}),
}

# labsrc's option and what GRPOTrainer calls it after its set-up.
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

# labsrc's preference loss, DPOTrainer's loss_type, and whether it takes means over tokens where DPO takes sums: TRL
# divides by the length in IPO, as its authors confirmed.
PAIRS: Mapping[str, tuple[Callable[..., Tensor], str, bool]] = {
    "DPO": (preference.dpo_loss, "sigmoid", False),
    "IPO": (preference.ipo_loss, "ipo", True),
    "DPO of means": (preference.dpo_loss, "sigmoid_norm", True),
}


def ragged_batch(seed: int, dtype: torch.dtype = torch.float64, *, rows: int = 6, tokens: int = 7) -> dict[str, Tensor]:
    """logp, old, ref (B, T) in nats, advantages (B,) and mask (B, T); the first row has one token, the second all."""
    generator = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return torch.randn(rows, tokens, dtype=torch.float64, generator=generator)

    logp = -noise().abs()
    lengths = torch.cat([torch.tensor([1, tokens]), torch.randint(1, tokens + 1, (rows - 2,), generator=generator)])
    return {
        "logp": logp.to(dtype),
        "old": (logp + 0.3 * noise()).to(dtype),
        "ref": (logp + 0.3 * noise()).to(dtype),
        "advantages": noise()[:, 0].to(dtype),
        "mask": torch.arange(tokens) < lengths[:, None],
    }


def pair_batch(seed: int, dtype: torch.dtype = torch.float64, *, pairs: int = 4, tokens: int = 6) -> SimpleNamespace:
    """logp, ref (2·pairs, T) in nats and mask, chosen rows first."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (2 * pairs, 1), generator=generator)
    logp, ref = (-torch.randn(2, 2 * pairs, tokens, dtype=torch.float64, generator=generator).abs()).to(dtype)
    return SimpleNamespace(logp=logp, ref=ref, mask=torch.arange(tokens) < lengths, pairs=pairs)


def trl_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """labsrc's options under TRL's names."""
    return {TRL_NAME[name]: value for name, value in options.items()}


@torch.enable_grad()
def labsrc_loss(function: Callable[..., Tensor], batch: Mapping[str, Tensor], **options: Any) -> tuple[Tensor, Tensor]:
    """Loss and gradient on logp (B, T) by labsrc, with NaN in all the padding."""
    holes = {name: torch.where(batch["mask"], batch[name], math.nan) for name in ("logp", "old", "ref")}
    leaf = holes["logp"].requires_grad_()
    ref = holes["ref"] if options["beta"] else None
    loss = function(leaf, holes["old"], ref, batch["advantages"], batch["mask"], **options)
    return loss.detach(), stand_in.gradient(loss, leaf)


@torch.enable_grad()
def labsrc_pair_loss(name: str, batch: SimpleNamespace, *, beta: float) -> tuple[Tensor, Tensor]:
    """Mean loss and gradient on the tokens of an entry of `PAIRS` by labsrc, with NaN in all the padding."""
    function, _, mean = PAIRS[name]
    leaf = torch.where(batch.mask, batch.logp, math.nan).requires_grad_()
    reduce = policy_gradient.sequence_log_ratio if mean else masking.sum_over_tokens
    columns = [*reduce(leaf, batch.mask).chunk(2), *reduce(batch.ref, batch.mask).chunk(2)]
    loss = function(*columns, beta=beta).mean()
    return loss.detach(), stand_in.gradient(loss, leaf)


def both_losses(
    name: str, batch: Mapping[str, Tensor], *, beta: float, kl_ratio_weighted: bool
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(loss, gradient) of an entry of `FAMILY` by labsrc, and by TRL."""
    twin = FAMILY[name]
    ours = labsrc_loss(twin.loss, batch, beta=beta, kl_ratio_weighted=kl_ratio_weighted, **twin.options)
    changed = {"beta": beta, "use_bias_correction_kl": kl_ratio_weighted} | trl_names(twin.options)
    return ours, stand_in.grpo_loss(batch, twin.loss_type, twin.level, **changed)[:2]


def largest_gaps(name: str, dtype: torch.dtype, *, seeds: int = 20) -> tuple[float, float]:
    """Largest |difference| of the value and of the gradient between the libraries, over `seeds` batches.

    Relative to TRL's number where that is above 1: IPO's square may be in the hundreds, and float32 has seven digits.
    name: an entry of `FAMILY`, with β = 0.04 and the penalty weighted by the ratio; or of `PAIRS`, with β = 0.1.
    """
    value_gap = gradient_gap = 0.0
    for seed in range(seeds):
        if name in FAMILY:
            ours, theirs = both_losses(name, ragged_batch(seed, dtype), beta=0.04, kl_ratio_weighted=True)
        else:
            pairs = pair_batch(seed, dtype)
            ours = labsrc_pair_loss(name, pairs, beta=0.1)
            theirs = stand_in.dpo_loss(pairs, PAIRS[name][1], 0.1)
        value_gap, gradient_gap = (
            max(worst, ((one - other).abs() / other.abs().clamp(min=1.0)).max().item())
            for worst, one, other in zip((value_gap, gradient_gap), ours, theirs, strict=True)
        )
    return value_gap, gradient_gap
