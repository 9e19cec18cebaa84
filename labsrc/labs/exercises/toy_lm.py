"""Exercises of chapter 5: the loop, on a toy language model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labsrc import advantages, grpo
from labsrc.binary_groups import wasted_share
from labsrc.labs.exercises.kinds import Choice, Code, Number

ONE_RIGHT = [1.0, 0.0, 0.0, 0.0, 0.0]
COMPLETIONS = 50 * 16 * 120


def _best_of_five(ddof: int = 0) -> float:
    return advantages.standardized(ONE_RIGHT, std_eps=0.0, ddof=ddof)[0].item()


def _slopes(signal: list[float], lengths: list[int]) -> list[list[float]]:
    """What autograd says of the package's own loss at ratio 1."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    logp = torch.full(mask.shape, -1.0, dtype=torch.float64, requires_grad=True)
    loss = grpo.grpo_loss(logp, logp.detach(), None, signal, mask, beta=0.0)
    (slope,) = torch.autograd.grad(loss, logp)
    return [row[:length].tolist() for row, length in zip(slope, lengths, strict=True)]


def _gradient_trial(function: Callable[..., Any]) -> str | None:
    for signal, lengths in (([1.0, -1.0], [1, 1]), ([1.0, -1.0], [2, 5]), ([1.5, -0.5, -0.5, -0.5], [3, 1, 4, 2])):
        wanted, found = _slopes(signal, lengths), [list(row) for row in function(list(signal), list(lengths))]
        case = f"for advantages {signal} and lengths {lengths}"
        if [len(row) for row in found] != lengths:
            return f"{case} it gives rows of {[len(row) for row in found]} numbers, wanted {lengths}"
        pairs = [pair for rows in zip(found, wanted, strict=True) for pair in zip(*rows, strict=True)]
        if not all(math.isclose(float(a), b, rel_tol=1e-9) for a, b in pairs):
            return f"{case} it gives {found}, wanted {[[round(x, 6) for x in row] for row in wanted]}"
    return None


EXERCISES = {
    "toy-1": Number(
        answer=_best_of_five,
        hint="The mean is 1/5. The squared distances from it are 16/25 once and 1/25 four times.",
        reason="The mean is 1/5, the variance 4/25: A = (4/5)/(2/5) = 2.",
        mistakes=(
            (lambda: _best_of_five(1), "That divides by the sample deviation. The question asks for the population's."),
            (lambda: 0.8, "That is the centred reward. Divide it by the deviation."),
        ),
    ),
    "toy-2": Number(
        answer=lambda: wasted_share(0.05, group_size=16).item(),
        hint="A group is equal if all are wrong, or all are right.",
        reason="0.95¹⁶ + 0.05¹⁶: nearly half of the groups teach nothing.",
        mistakes=((lambda: 1 - 0.95**16 - 0.05**16, "That is the share of groups that teach something."),),
    ),
    "toy-3": Number(
        answer=lambda: 2 * COMPLETIONS,
        hint="Count the completions first. How many networks does each of them pass through with a gradient?",
        reason="96,000 completions, once through the policy and once through the critic.",
        mistakes=(
            (lambda: COMPLETIONS, "That is the policy alone. The critic is trained too."),
            (lambda: 3 * COMPLETIONS, "The critic's judgement before the update carries no gradient."),
        ),
    ),
    "toy-4": Number(
        answer=lambda: 0.3 * 4 / 3,
        hint="It follows (1 − 1/G)·∇J − β·∇KL. Divide by the factor of ∇J.",
        reason="β·G/(G − 1) = 0.4: the penalty weighs more, because the reward's gradient was shrunk.",
        mistakes=(
            (lambda: 0.3 * 3 / 4, "That is β times the factor. The factor is on the reward's side: divide by it."),
            (lambda: 0.3, "That would be the end point of leave-one-out."),
        ),
    ),
    "toy-5": Choice(
        correct="c",
        options={
            "a": "At ratio 1 the value is −mean(A) = 0. The gradient is −mean(A·∇log π): is that zero too?",
            "b": "Equal groups would give 0. But unequal ones give 0 as well at ratio 1.",
            "c": "",
            "d": "With β = 0 the reference is not asked at all.",
        },
        hint="Put ρ = 1 into the loss. What do the advantages of a group add up to?",
        reason="Every update is a first one, and there the value is 0 by construction.",
    ),
    "toy-6": Code(
        trial=_gradient_trial,
        hint="A row's tokens share its weight 1/B equally, and the loss is minus the surrogate.",
        reason="−A/(B·|y|) for each token: long completions are pushed less per token.",
    ),
}
