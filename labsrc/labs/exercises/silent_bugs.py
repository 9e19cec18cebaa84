"""Exercises of chapter 7: bugs that raise no error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labsrc import aggregation, masking
from labsrc.labs.exercises.kinds import Choice, Code, Number
from labsrc.pitfalls import groups, scale

_VALUES, _MASK = torch.tensor([[4.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]), torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]])


def _largest_difference() -> float:
    rewards = torch.tensor([[0.0, 1.0, 10.0, 11.0]], dtype=torch.float64)
    by_rank = torch.stack(rewards.chunk(2, -1))
    return (scale.gathered_advantages(by_rank) - scale.per_rank_advantages(by_rank)).abs().max().item()


def _token_mean(token_count: int | None = None) -> float:
    return aggregation.mean_over_tokens(_VALUES, _MASK, token_count=token_count).item()


def _mean_of_slice_means() -> float:
    return sum(aggregation.mean_over_tokens(_VALUES[i : i + 1], _MASK[i : i + 1]).item() for i in range(2)) / 2


def _grouping_trial(function: Callable[..., Any]) -> str | None:
    generator = torch.Generator().manual_seed(5)
    for prompts, group_size in ((2, 3), (3, 2), (4, 8)):
        ids = groups.rows_of_prompts(torch.arange(prompts), group_size)
        rewards = torch.rand(len(ids), generator=generator, dtype=torch.float64)
        order = torch.randperm(len(ids), generator=generator)
        found = torch.as_tensor(function(rewards[order], ids[order], group_size))
        wanted = groups.advantages_by_prompt(rewards[order], ids[order], group_size)
        if found.shape != wanted.shape:
            return f"for {len(ids)} rewards it gives the shape {tuple(found.shape)}, wanted {tuple(wanted.shape)}"
        if not torch.allclose(found.double(), wanted, rtol=0, atol=1e-5):
            return (
                f"for {prompts} prompts with {group_size} shuffled completions each, an advantage is not its prompt's"
            )
    return None


def _mask_trial(function: Callable[..., Any]) -> str | None:
    for row in ([5, 6, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8], [5, 0, 6, 0]):
        tokens = torch.tensor([row])
        wanted = masking.completion_mask(tokens, eos_token=0)
        found = torch.as_tensor(function(tokens, 0))
        if found.shape != wanted.shape or not torch.equal(found.bool(), wanted):
            return f"for the row {row} it gives {found.int().tolist()}, wanted {wanted.int().tolist()}"
    return None


EXERCISES = {
    "bugs-1": Number(
        answer=lambda: math.sqrt(8 / 7),
        hint="The two deviations divide the same sum of squares by G and by G − 1.",
        reason="√(G/(G − 1)) at G = 8: every advantage, and so the step, is 7 per cent larger.",
        mistakes=(
            (lambda: 8 / 7, "That is the ratio of the variances. The advantage is divided by a deviation."),
            (lambda: math.sqrt(7 / 8), "That is the sample's advantage over the population's. Turn it round."),
        ),
    ),
    "bugs-2": Number(
        answer=_largest_difference,
        hint="On each rank the two rewards are one apart, so the advantages are −1 and 1. Then take all four together.",
        reason="The reward 1 is the better one of its rank and gets +1; in the whole group it is far below the mean.",
        mistakes=((lambda: 1.0, "Some advantage differs by more. Compare all four, one by one."),),
    ),
    "bugs-3": Number(
        answer=lambda: _token_mean(),
        hint="Add up all valid tokens of both slices, then divide once by how many there are.",
        reason="(4 + 4)/5: each of the five tokens weighs the same.",
        mistakes=(
            (_mean_of_slice_means, "That is the mean of the two slices' means: the one token weighs as much as four."),
            (lambda: _token_mean() / 2, "That is divided twice: by the tokens of the batch, and by the slices."),
        ),
    ),
    "bugs-4": Code(
        trial=_mask_trial,
        hint="Count the EOS tokens that stand *before* each position: (is_eos.cumsum(-1) − is_eos) == 0.",
        reason="The first EOS was chosen by the policy and counts; whatever follows it does not.",
    ),
    "bugs-5": Code(
        trial=_grouping_trial,
        hint="Sort by prompt with a stable argsort, view as groups, standardise; order.argsort() undoes the order.",
        reason="The advantage of a completion now depends on its prompt, not on its place in the batch.",
    ),
    "bugs-6": Choice(
        correct="b",
        options={
            "a": "A wrong deviation changes the scale of all advantages, and none of the ratios.",
            "b": "",
            "c": "The reference is not in the ratio. It stands only in the KL.",
            "d": "An old policy that lags behind would do so too, but here no optimiser step has been made.",
        },
        hint="Which two distributions stand in the ratio, and what must make them equal before the first step?",
        reason="Sampler and trainer must give one token one log-probability; a temperature on one side breaks that.",
    ),
    "bugs-7": Choice(
        correct="c",
        options={
            "a": "The shapes fit in every layout; that is why the bug is silent.",
            "b": "The mean over the batch is 0 for every grouping, wrong ones too.",
            "c": "",
            "d": "A finite loss says that no number was divided by zero, and nothing about who was compared with whom.",
        },
        hint="Which sum is 0 for right groups, and for wrong ones only by chance?",
        reason="Within a wrong group the sum is 0 as well; within a *prompt* it is so only if the groups are prompts.",
    ),
}
