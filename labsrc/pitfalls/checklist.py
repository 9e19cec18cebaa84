"""A checklist for the reader's own batch: what in it looks like one of the silent bugs (chapter 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from labsrc import advantages, checks, policy_gradient

# A right number may carry the rounding of float32 or bfloat16 log-probabilities and rewards; a bug is far larger.
SAME_LOGP = 1e-3  # nats
SAME_ADVANTAGE = 1e-3
GUARDS = (0.0, 1e-8, 1e-6, 1e-4)  # the std_eps in use
LEVELS = ("token", "geometric mean", "product")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a trainer holds before an update; everything may be absent.

    logp, logp_old, logp_ref, ratios: (B, T), nats but for the ratios; mask: (B, T), True counts; rewards, group_ids:
    (B,); advantages: (B,) or (B, T); token_ids: (B, T). eos_token: its id. ddof: the deviation you mean to use.
    ratio_level: the ratio you mean to use, one of `LEVELS`. first_update: True where no optimiser step lies between
    sampling and this batch. Raises ValueError for shapes that do not fit each other.
    """

    logp: Any = None
    logp_old: Any = None
    logp_ref: Any = None
    ratios: Any = None
    mask: Any = None
    rewards: Any = None
    group_ids: Any = None
    advantages: Any = None
    token_ids: Any = None
    eos_token: int | None = None
    ddof: int | None = None
    ratio_level: str | None = None
    first_update: bool = False

    def __post_init__(self) -> None:
        """Make tensors of what is there, and refuse what cannot be one batch."""
        for name in ("logp", "logp_old", "logp_ref", "ratios", "rewards", "advantages"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.float_tensor(name, getattr(self, name)).detach().double())
        for name in ("mask", "group_ids", "token_ids"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _whole_numbers(name, getattr(self, name)))
        if self.mask is not None:
            object.__setattr__(self, "mask", self.mask == 1)
        if self.ddof is not None:
            checks.one_of("ddof", self.ddof, (0, 1))
        if self.ratio_level is not None:
            checks.one_of("ratio_level", self.ratio_level, LEVELS)
        self._check_shapes()

    def _check_shapes(self) -> None:
        tokens = {n: getattr(self, n) for n in ("logp", "logp_old", "logp_ref", "ratios", "mask", "token_ids")}
        rows = {n: getattr(self, n) for n in ("rewards", "group_ids")}
        if self.advantages is not None:
            (tokens if self.advantages.dim() == 2 else rows)["advantages"] = self.advantages
        tokens, rows = ({n: value for n, value in table.items() if value is not None} for table in (tokens, rows))
        for table, wanted, dimensions in ((tokens, "(B, T)", 2), (rows, "(B,)", 1)):
            for name, value in table.items():
                if value.dim() != dimensions:
                    raise ValueError(f"{name} must be {wanted}; got shape {tuple(value.shape)}")
            checks.same_shape(**table)
        lengths = {name: len(value) for name, value in (tokens | rows).items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"all parts of a batch must have one number of completions; got {lengths}")

    @property
    def valid(self) -> Tensor:
        """The mask, or all True; a batch without any (B, T) part has none."""
        if self.mask is not None:
            return self.mask
        table = next(getattr(self, n) for n in ("logp", "logp_old", "ratios", "logp_ref") if self.has(n))
        return torch.ones_like(table, dtype=torch.bool)

    @property
    def row_advantages(self) -> Tensor:
        """(B,) advantages; of (B, T) ones, the first valid token's."""
        if self.advantages.dim() == 1:
            return self.advantages
        first = self.mask.int().argmax(-1) if self.has("mask") else torch.zeros(len(self.advantages), dtype=torch.long)
        return self.advantages.gather(1, first.unsqueeze(-1)).squeeze(-1)

    def has(self, *names: str) -> bool:
        """Whether all of these are there."""
        return all(getattr(self, name) is not None for name in names)

    def groups(self) -> Iterator[Tensor]:
        """The rows of each group."""
        for group in self.group_ids.unique():
            yield (self.group_ids == group).nonzero().flatten()


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong.

    severity: "wrong" for what no right batch shows, "look" for what a right batch may show for a good reason. rows:
    which completions. number: how bad, in the unit that `text` names. advice: what to do.
    """

    name: str
    severity: str
    rows: tuple[int, ...]
    number: float
    text: str
    advice: str

    def __str__(self) -> str:
        """One line, and the advice under it."""
        shown = ", ".join(map(str, self.rows[:6])) + (", …" if len(self.rows) > 6 else "")
        return f"{self.severity}: {self.name}: {self.number:.4g} {self.text} (rows {shown})\n    {self.advice}"


def inspect(batch: Batch) -> list[Finding]:
    """Everything on the checklist that this batch fails, "wrong" before "look"; an empty list if nothing does.

    It reads and changes nothing. What is absent is not judged, so an empty list says only that what is there shows no
    sign of these bugs.
    """
    found = [finding for check in _CHECKS for finding in check(batch)]
    return sorted(found, key=lambda finding: finding.severity != "wrong")


def absent(batch: Batch) -> list[str]:
    """The parts this batch lacks: what `inspect` could not look at."""
    return [field.name for field in fields(batch) if getattr(batch, field.name) is None]


def _log_probabilities(batch: Batch) -> Iterator[Finding]:
    for name in ("logp", "logp_old", "logp_ref"):
        if not batch.has(name):
            continue
        values, valid = getattr(batch, name), batch.valid
        bad = valid & ~values.isfinite()
        if bad.any():
            advice = f"Find the first non-finite number that goes into {name}; never mask it away."
            yield _finding(f"{name} not finite", "wrong", bad.any(-1), bad.sum(), "valid tokens", advice)
        positive = valid & values.isfinite() & (values > SAME_LOGP)
        if positive.any():
            advice = "A log-probability is at most 0: these may be logits, losses or probabilities."
            worst = values[positive].max()
            yield _finding(f"{name} above 0", "wrong", positive.any(-1), worst, "nats at worst", advice)


def _masks(batch: Batch) -> Iterator[Finding]:
    if not batch.has("mask"):
        return
    empty = ~batch.mask.any(-1)
    if empty.any():
        advice = "Leave such a completion out of the loss and out of every count, or keep at least its EOS."
        yield _finding("empty mask", "wrong", empty, empty.sum(), "completions without a token", advice)
    started, ends_later = batch.mask.cumsum(-1) > 0, batch.mask.flip(-1).cumsum(-1).flip(-1) > 0
    hole = started & ends_later & ~batch.mask
    if hole.any():
        advice = "Right for tokens of a tool; padding belongs before the first or after the last valid token."
        yield _finding("padding inside", "look", hole.any(-1), hole.sum(), "masked tokens between valid ones", advice)


def _eos(batch: Batch) -> Iterator[Finding]:
    if not batch.has("mask", "token_ids", "eos_token"):
        return
    is_eos = batch.token_ids == batch.eos_token
    ends = is_eos.any(-1)
    # A completion cut off at the limit may be padded with EOS; that no row at all trains its EOS has one reason.
    if ends.any() and not (is_eos & batch.mask).any():
        advice = "Let the mask end with the first EOS, not before it: masking.completion_mask."
        yield _finding("EOS never trained", "wrong", ends, ends.sum(), "completions end untrained", advice)


def _snapshots(batch: Batch) -> Iterator[Finding]:
    if batch.has("logp_old", "logp_ref") and torch.equal(*_both(batch, "logp_old", "logp_ref")):
        rows = torch.ones(len(batch.logp_old), dtype=torch.bool)
        advice = "True before the first optimiser step of a run only; later the reference follows the policy."
        yield _finding("old is the reference", "look", rows, 0.0, "nats apart", advice)
    if batch.first_update and batch.has("logp", "logp_old"):
        gap = torch.where(batch.valid, batch.logp - batch.logp_old, 0.0).nan_to_num(0.0, 0.0, 0.0).abs()
        off = (gap > SAME_LOGP).any(-1)
        if off.any():
            advice = "Same temperature, same tokens, same mask, no dropout? Else engine and trainer differ: correct it."
            yield _finding("first ratio not 1", "wrong", off, gap.max().exp(), "is a ratio before any update", advice)


def _ratio_levels(batch: Batch) -> Iterator[Finding]:
    if not batch.has("ratios", "logp", "logp_old") or not batch.valid.any(-1).all():
        return
    log_ratio = torch.where(batch.valid, batch.logp - batch.logp_old, 0.0)
    if not log_ratio.isfinite().all():
        return
    mean = policy_gradient.sequence_log_ratio(log_ratio, batch.valid)
    levels = dict(zip(LEVELS, (log_ratio, mean[:, None], log_ratio.sum(-1, keepdim=True)), strict=True))
    gaps = {
        level: (batch.ratios / value.exp() - 1)[batch.valid].abs().max().item()
        for level, value in ((level, value.expand_as(log_ratio)) for level, value in levels.items())
    }
    matching = [level for level, gap in gaps.items() if gap < SAME_LOGP]
    rows = torch.ones(len(log_ratio), dtype=torch.bool)
    if not matching:
        advice = "None of token, geometric mean and product is exp(logp − logp_old): look at what is subtracted."
        yield _finding("ratio of no level", "wrong", rows, min(gaps.values()), "relative gap to the nearest", advice)
    elif batch.ratio_level is not None and batch.ratio_level not in matching:
        advice = f"These are ratios of the level {matching[0]}; each level has clip radii of its own."
        gap = gaps[batch.ratio_level]
        yield _finding("ratio of another level", "wrong", rows, gap, f"relative gap to {batch.ratio_level}", advice)


def _group_shapes(batch: Batch) -> Iterator[Finding]:
    if not batch.has("group_ids"):
        return
    rows = list(batch.groups())
    split = _rows(batch, [group for group in rows if (group.diff() != 1).any()])
    if split.any():
        advice = "Sort by group before view(-1, G), and put the advantages back in the batch's order."
        yield _finding("groups not contiguous", "wrong", split, split.sum(), "completions in split groups", advice)
    alone = _rows(batch, [group for group in rows if len(group) == 1])
    if alone.any():
        advice = "A group of one has no neighbour to compare with: its advantage is 0 or NaN. Sample more."
        yield _finding("group of one", "wrong", alone, alone.sum(), "completions alone", advice)
    sizes = [len(group) for group in rows]
    if len(set(sizes)) > 1:
        odd = _rows(batch, [group for group in rows if len(group) != max(sizes)])
        advice = "view(-1, G) needs one G: look for dropped or duplicated completions."
        yield _finding(
            "unequal groups",
            "wrong",
            odd,
            min(sizes),
            f"completions in the smallest, {max(sizes)} in the largest",
            advice,
        )


def _constant_groups(batch: Batch) -> Iterator[Finding]:
    if not batch.has("group_ids", "rewards"):
        return
    missing = ~batch.rewards.isfinite()
    if missing.any():
        advice = "Say what a missing reward means: advantages.standardized_excluding_missing is one answer."
        yield _finding("reward not finite", "look", missing, missing.sum(), "completions", advice)
    groups = [group for group in batch.groups() if len(group) > 1]
    constant = [group for group in groups if _is_constant(batch.rewards[group])]
    if constant:
        share = len(constant) / len(groups)
        advice = "Their policy gradient is 0. Near 1: tasks too easy or too hard, or a reward that says nothing."
        yield _finding("constant groups", "look", _rows(batch, constant), share, "of the groups", advice)
    if constant and batch.has("advantages"):
        residue = [g for g in constant if batch.row_advantages[g].nan_to_num().abs().max() > SAME_ADVANTAGE]
        if residue:
            rows = _rows(batch, residue)
            advice = "A rounding residue divided by a tiny std_eps: set constant groups to exactly 0."
            largest = batch.row_advantages[rows].abs().max()
            yield _finding("equal rewards, advantage", "wrong", rows, largest, "is the largest advantage", advice)


def _advantage_sums(batch: Batch) -> Iterator[Finding]:
    if not batch.has("advantages"):
        return
    values = batch.row_advantages
    bad = ~values.isfinite()
    if bad.any():
        advice = "A sample deviation of one completion is NaN; so is 0/0 without a guard."
        yield _finding("advantage not finite", "wrong", bad, bad.sum(), "completions", advice)
    if not batch.has("group_ids"):
        return
    means = {g: values[g].mean().abs() for g in batch.groups() if values[g].isfinite().all() and len(g) > 1}
    # Equal rewards have a finding of their own.
    if batch.has("rewards"):
        means = {g: mean for g, mean in means.items() if not _is_constant(batch.rewards[g])}
    off = {g: mean for g, mean in means.items() if mean > SAME_ADVANTAGE * values[g].abs().max().clamp(min=1.0)}
    if off:
        advice = "Rewards were grouped by other neighbours: a shuffle before view(-1, G), or prompts as A B A B."
        worst = max(off.values())
        yield _finding("advantages not centred", "wrong", _rows(batch, list(off)), worst, "is a group's mean", advice)


def _advantage_scale(batch: Batch) -> Iterator[Finding]:
    """Which deviation divided, and over which completions."""
    table = _reward_table(batch)
    if table is None:
        return
    rewards, found, rows = table
    matches = {d for d in (0, 1) if _explains(found, rewards, d)}
    if batch.ddof is not None and matches and batch.ddof not in matches:
        size = rewards.shape[1]
        advice = f"They are divided by the deviation with ddof = {1 - batch.ddof}: all are off by one factor."
        factor = (size / (size - 1)) ** 0.5
        yield _finding("the other deviation", "wrong", rows, factor, "is the factor between the two", advice)
    if matches or _is_proportional(found, rewards):
        return
    for ranks, shares in _shares(rewards.shape[1]):
        if all(_explains(found[:, share], rewards[:, share], None) for share in shares):
            advice = "Gather the rewards of a group from all processes first, then take mean and deviation."
            yield _finding("normalised per rank", "wrong", rows, ranks, "shares explain the advantages", advice)
            return


_CHECKS = (
    _log_probabilities,
    _masks,
    _eos,
    _snapshots,
    _ratio_levels,
    _group_shapes,
    _constant_groups,
    _advantage_sums,
    _advantage_scale,
)


def _finding(name: str, severity: str, rows: Tensor, number: Any, text: str, advice: str) -> Finding:
    return Finding(name, severity, tuple(rows.nonzero().flatten().tolist()), float(number), text, advice)


def _whole_numbers(name: str, value: Any) -> Tensor:
    tensor = checks.finite(name, value.to(torch.float64) if isinstance(value, Tensor) else value)
    if name == "mask" and not ((tensor == 0) | (tensor == 1)).all():
        raise ValueError(f"mask must hold only True/False or 1/0; got values in {tensor.unique().tolist()[:5]}")
    if (tensor != tensor.round()).any():
        raise ValueError(f"{name} must be whole numbers; got {tensor[tensor != tensor.round()][0].item()}")
    return tensor.long()


def _both(batch: Batch, *names: str) -> list[Tensor]:
    return [torch.where(batch.valid, getattr(batch, name), 0.0) for name in names]


def _rows(batch: Batch, groups: list[Tensor]) -> Tensor:
    chosen = torch.zeros(len(batch.group_ids), dtype=torch.bool)
    for group in groups:
        chosen[group] = True
    return chosen


def _is_constant(rewards: Tensor) -> bool:
    return bool(rewards.max() == rewards.min())


def _reward_table(batch: Batch) -> tuple[Tensor, Tensor, Tensor] | None:
    """Rewards and advantages (P, G) of the groups that have a deviation, and their rows; None if they make no table."""
    if not batch.has("rewards", "advantages", "group_ids"):
        return None
    finite = batch.rewards.isfinite() & batch.row_advantages.isfinite()
    groups = [g for g in batch.groups() if finite[g].all() and len(g) > 1 and not _is_constant(batch.rewards[g])]
    if not groups or len({len(group) for group in groups}) > 1:
        return None
    index = torch.stack(groups)
    return batch.rewards[index], batch.row_advantages[index], _rows(batch, groups)


def _explains(found: Tensor, rewards: Tensor, ddof: int | None) -> bool:
    """Whether standardising these rewards gives these advantages, under some guard (and some ddof)."""
    choices = (0, 1) if ddof is None else (ddof,)
    candidates = (advantages.standardized(rewards, std_eps=e, ddof=d) for e in GUARDS for d in choices)
    return any(torch.allclose(found, candidate, rtol=SAME_ADVANTAGE, atol=SAME_ADVANTAGE) for candidate in candidates)


def _is_proportional(found: Tensor, rewards: Tensor) -> bool:
    """Whether each group's advantages are its centred rewards times one number."""
    direction = advantages.centered(rewards)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    rest = found - (found * direction).sum(-1, keepdim=True) * direction
    return bool((rest.norm(dim=-1) <= SAME_ADVANTAGE * found.norm(dim=-1).clamp(min=1e-12)).all())


def _shares(group_size: int) -> Iterator[tuple[int, list[Tensor]]]:
    """Every way of dealing a group to processes, at least two completions to each: in blocks, or in turn."""
    order = torch.arange(group_size)
    for ranks in range(2, group_size // 2 + 1):
        if group_size % ranks == 0:
            yield ranks, list(order.chunk(ranks))
            yield ranks, [order[rank::ranks] for rank in range(ranks)]
