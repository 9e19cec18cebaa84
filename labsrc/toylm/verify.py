"""Recomputing a record from itself: rewards from tokens, advantages from rewards, losses from log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, masking, preference
from labsrc.toylm import critic, losses, online, records, sampling, training
from labsrc.toylm.records import Record
from labsrc.toylm.rollout import Rollout
from labsrc.toylm.settings import DpoSettings, OnlineSettings, PpoSettings, TrainingSettings

# Numbers in a record carry all their digits, so only the order of a sum on another machine may differ. A learned
# reward is trained again, and those differences grow over its training.
RTOL, ATOL = 1e-9, 1e-12
LEARNED_RTOL = 1e-5


@dataclass(frozen=True)
class Verification:
    """What was found: checks made, disagreements (each says where and by how much), and what could not be checked."""

    checked: int
    disagreements: list[str]
    notes: list[str]

    @property
    def agrees(self) -> bool:
        """Whether every check that was made agreed."""
        return not self.disagreements


class _Comparison:
    """Collects checks; a number agrees within the tolerance, everything else exactly."""

    def __init__(self) -> None:
        self.checked = 0
        self.disagreements: list[str] = []

    def equal(self, place: str, recorded: Any, recomputed: Any) -> None:
        self.checked += 1
        if recorded != recomputed:
            self.disagreements.append(f"{place}: recorded {recorded}, recomputed {recomputed}")

    def close(self, place: str, recorded: Any, recomputed: Any, *, rtol: float = RTOL) -> None:
        recorded, recomputed = (checks.float_tensor(place, value) for value in (recorded, recomputed))
        self.checked += recorded.numel()
        if recorded.shape != recomputed.shape:
            shapes = f"{tuple(recorded.shape)}, wanted {tuple(recomputed.shape)}"
            self.disagreements.append(f"{place}: recorded in shape {shapes}")
            return
        wrong = ~torch.isclose(recorded, recomputed, rtol=rtol, atol=ATOL, equal_nan=True)
        for index in wrong.nonzero().tolist()[:3]:
            position = "".join(f"[{i}]" for i in index)
            got, wanted = recorded[tuple(index)].item(), recomputed[tuple(index)].item()
            self.disagreements.append(f"{place}{position}: recorded {got!r}, recomputed {wanted!r}")


def verify(record: Record) -> Verification:
    """Recompute what the record says about itself. Raises ValueError for settings that no run could have had."""
    settings = records.settings_from_dict(record.settings)
    comparison, notes = _Comparison(), list(_notes(record, settings))
    comparison.equal("method", record.method, settings.method)
    comparison.equal("monitors: number of steps", len(record.monitors), record.steps_done)
    if record.groups:
        comparison.equal("groups: number of steps", len(record.groups), record.steps_done)
    if record.exit_status == 0:
        comparison.equal("steps_done", record.steps_done, settings.steps)
    check = _pair_step if isinstance(settings, DpoSettings) else _group_step
    for index, (group, monitors) in enumerate(zip(record.groups, record.monitors, strict=False)):
        try:
            check(comparison, f"groups[{index}]", settings, group, monitors)
        except (ValueError, IndexError, RuntimeError) as error:
            # Numbers that no objective accepts are a finding about the record, not a crash of the check.
            comparison.disagreements.append(f"groups[{index}]: cannot be recomputed: {error}")
    return Verification(comparison.checked, comparison.disagreements, notes)


def verify_by_rerun(record: Record) -> Verification:
    """Run the settings again and compare every step with the record, number by number."""
    again = training.run(records.settings_from_dict(record.settings))
    comparison = _Comparison()
    for name in ("before", "after", "groups", "monitors"):
        _compare_tree(comparison, name, getattr(record, name), getattr(again, name))
    comparison.equal("cost", record.cost, again.cost)
    return Verification(comparison.checked, comparison.disagreements, list(_notes(record, None)))


def _notes(record: Record, settings: TrainingSettings | None) -> Iterator[str]:
    now = records.source_hashes()
    changed = sorted(name for name, digest in record.sources.items() if now.get(name) != digest)
    if changed:
        some = ", ".join(changed[:4]) + " …" * (len(changed) > 4)
        yield f"{len(changed)} source files are not those of the run: {some}"
    if record.exit_status:
        yield f"the run did not come to its end: exit status {record.exit_status}, {record.error}"
    if settings is not None and not record.groups:
        yield "the record holds no steps, only monitors: rewards, advantages and losses were not recomputed"


def _padded(rows: list[list[float]], like: Tensor, fill: float = 0.0) -> Tensor:
    """Ragged rows as a (B, T) tensor of the mask's shape; raises ValueError for a row of another length."""
    lengths = like.sum(-1).tolist()
    if [len(row) for row in rows] != lengths:
        raise ValueError(f"rows must have {lengths} entries; got {[len(row) for row in rows]}")
    width = like.shape[1]
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.float64)


def _completions(rows: list[list[int]], settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Ids padded to T, and the mask; raises ValueError where the tokens do not end where the record says."""
    longest, eos = settings.task.max_new_tokens, settings.task.eos_token
    padding = 0 if eos is None else eos
    tokens = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])
    mask = sampling.valid_tokens(tokens, eos)
    if mask.sum(-1).tolist() != [len(row) for row in rows]:
        raise ValueError("completions must run to their first EOS, or to the longest length without one")
    return tokens, mask


def _group_step(
    comparison: _Comparison, place: str, settings: OnlineSettings, group: dict[str, Any], monitors: dict[str, Any]
) -> None:
    tokens, mask = _completions(group["completions"], settings)
    prompts = torch.tensor(group["prompts"])
    rows = [[float("nan") if reward is None else reward for reward in row] for row in group["rewards"]]
    rewards = torch.tensor(rows, dtype=torch.float64)
    beside = sampling.repeat_prompts(prompts, rewards.shape[1])
    recomputed = settings.task.rewards(beside, tokens, mask).view(rewards.shape)
    learned = isinstance(settings.task, records.LearnedReward)
    comparison.close(f"{place}.rewards", rewards, recomputed, rtol=LEARNED_RTOL if learned else RTOL)
    comparison.equal(f"{place}.zero_variance", group["zero_variance"], [len(set(row)) == 1 for row in group["rewards"]])
    logp_old = _padded(group["logp_old"], mask)
    logp_ref = None if group["logp_ref"] is None else _padded(group["logp_ref"], mask)
    rollout = Rollout(prompts, tokens, mask, rewards, logp_old, logp_ref, torch.zeros_like(logp_old))
    advantages = _advantages(comparison, place, settings, group, rollout)
    for index, update in enumerate(group["updates"]):
        logp = _padded(update["logp"], mask)
        if index == 0:
            comparison.equal(f"{place}: the first update's ratio is 1", group["logp_old"], update["logp"])
        if settings.loss_name in losses.LOSSES:
            loss = settings.loss_function(logp, logp_old, logp_ref, advantages, mask, **settings.loss_keywords)
            comparison.close(f"{place}.updates[{index}].loss", update["loss"], loss)
        if "values" in update:
            returns = advantages + _padded(group["values"], mask)
            loss = critic.value_loss(_padded(update["values"], mask), returns, mask)
            comparison.close(f"{place}.updates[{index}].value_loss", update["value_loss"], loss)
    comparison.close(f"monitors of {place}.reward_mean", monitors["reward_mean"], rewards.nan_to_num(0.0).mean())
    comparison.close(f"monitors of {place}.loss", monitors["loss"], group["updates"][-1]["loss"])


def _advantages(
    comparison: _Comparison, place: str, settings: OnlineSettings, group: dict[str, Any], rollout: Rollout
) -> Tensor:
    """The recorded advantages, compared with those of the recorded rewards."""
    if isinstance(settings, PpoSettings):
        recorded = _padded(group["advantages"], rollout.mask)
        recomputed = online.critic_advantages(settings, rollout, _padded(group["values"], rollout.mask))
        comparison.close(f"{place}.advantages", recorded, recomputed)
        return recorded
    recorded = torch.tensor(group["advantages"], dtype=torch.float64)
    comparison.close(f"{place}.advantages", recorded, online.group_advantages(settings, rollout))
    return recorded.flatten()


def _pair_step(
    comparison: _Comparison, place: str, settings: DpoSettings, step: dict[str, Any], monitors: dict[str, Any]
) -> None:
    sums = {}
    for side in ("chosen", "rejected"):
        _, mask = _completions(step[side], settings)
        for role in ("logp", "logp_ref"):
            sums[f"{role}_{side}"] = masking.sum_over_tokens(_padded(step[f"{role}_{side}"], mask), mask)
    if settings.pairs:
        given = [settings.pairs[index] for index in step["pairs"]]
        recorded = [step["prompts"], step["chosen"], step["rejected"]]
        comparison.equal(f"{place}: pairs", recorded, [[list(pair[i]) for pair in given] for i in range(3)])
    names = ("logp_chosen", "logp_rejected", "logp_ref_chosen", "logp_ref_rejected")
    loss = preference.dpo_loss(*(sums[name] for name in names), beta=settings.beta).mean()
    comparison.close(f"{place}.loss", step["loss"], loss)
    comparison.close(f"monitors of {place}.loss", monitors["loss"], step["loss"])


def _compare_tree(comparison: _Comparison, place: str, recorded: Any, again: Any) -> None:
    if isinstance(again, dict) and isinstance(recorded, dict) and again.keys() == recorded.keys():
        for name in again:
            _compare_tree(comparison, f"{place}.{name}", recorded[name], again[name])
    elif isinstance(again, list) and isinstance(recorded, list) and len(again) == len(recorded):
        for index, (one, other) in enumerate(zip(recorded, again, strict=True)):
            _compare_tree(comparison, f"{place}[{index}]", one, other)
    elif isinstance(again, float) and isinstance(recorded, float):
        comparison.close(place, recorded, again)
    else:
        comparison.equal(place, recorded, again)
