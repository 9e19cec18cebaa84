"""Exercises of chapter 6: what a real trainer adds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labsrc import aggregation, binary_groups, length_penalty, masking, policy_gradient
from labsrc.labs.exercises.kinds import Choice, Code, Number

_LENGTHS = (50, 400)


def _weights_apart() -> float:
    """How many times the weight of a long answer's token a token of the short one has."""
    mask = torch.arange(max(_LENGTHS)) < torch.tensor(_LENGTHS)[:, None]
    values = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        slope = torch.autograd.grad(aggregation.mean_of_sequence_means(values, mask), values)[0]
    return (slope[0, 0] / slope[1, 0]).item()


def _ratios() -> tuple[torch.Tensor, torch.Tensor]:
    log_ratio = torch.full((1, 200), math.log(1.01), dtype=torch.float64)
    return log_ratio, torch.ones_like(log_ratio, dtype=torch.bool)


def _product() -> float:
    return masking.sum_over_tokens(*_ratios()).exp().item()


def _geometric_mean() -> float:
    return policy_gradient.sequence_log_ratio(*_ratios()).exp().item()


def _wasted() -> float:
    return binary_groups.wasted_share(0.9, group_size=4).item()


def _penalty_trial(function: Callable[..., Any]) -> str | None:
    for lengths, max_length, cache in (([1, 6, 8, 10, 14], 10, 4), ([0, 5, 9], 9, 9), ([99, 100], 100, 1)):
        wanted = length_penalty.soft_overlong_penalty(lengths, max_length=max_length, cache=cache)
        found = torch.as_tensor(function(torch.tensor(lengths), max_length, cache))
        if found.shape != wanted.shape:
            return f"for {len(lengths)} lengths it gives the shape {tuple(found.shape)}, wanted {tuple(wanted.shape)}"
        if not torch.allclose(found.double(), wanted, rtol=0, atol=1e-5):
            shown = f"{[round(value, 4) for value in found.tolist()]}, wanted {wanted.tolist()}"
            return f"for lengths {lengths}, max_length {max_length} and cache {cache} it gives {shown}"
    return None


EXERCISES = {
    "trainer-1": Number(
        answer=_weights_apart,
        hint="Under the mean per sequence a token of an answer of n tokens is divided by n.",
        reason="400/50: whatever the advantage, a token of the short answer counts eight times.",
        mistakes=((lambda: 1 / _weights_apart(), "Turn it round: the short answer's token weighs more."),),
    ),
    "trainer-2": Number(
        answer=_product,
        hint="Log-ratios add up: 200 times log 1.01, and the exponential of the sum.",
        reason="A ratio that no clip by token would notice becomes a factor of more than seven for the sequence.",
        mistakes=(
            (_geometric_mean, "That is the geometric mean, which is the ratio of one token, however many there are."),
            (lambda: 1 + 200 * 0.01, "Ratios multiply, they do not add."),
        ),
    ),
    "trainer-3": Choice(
        correct="b",
        options={
            "a": "The attention mask says what the model may look at. It must look at the tool's answer.",
            "b": "",
            "c": "The tokens are right where they are: the policy reads them before it goes on.",
            "d": "A large advantage on them would still train the policy to write them itself.",
        },
        hint="Who chose these tokens? Only what the policy chose can be made more or less likely by an advantage.",
        reason="They stay in the context and leave the loss: attention mask 1, completion mask 0.",
    ),
    "trainer-4": Number(
        answer=lambda: 1 / (1 - _wasted()),
        hint="The share of groups that are kept is 1 − p⁴ − (1 − p)⁴. How many draws does one success take?",
        reason="Two groups in three are thrown away, each of them generated and scored in full.",
        mistakes=(
            (_wasted, "That is the share of groups that is wasted."),
            (lambda: 1 - _wasted(), "That is the share of groups that is kept. How many must be drawn for one?"),
        ),
    ),
    "trainer-5": Code(
        trial=_penalty_trial,
        hint="((max_length − cache) − lengths)/cache is 0 where the price begins and −1 at max_length: clamp it.",
        reason="One line and a clamp at both ends: 0, a slope, −1.",
    ),
    "trainer-6": Choice(
        correct="d",
        options={
            "a": "A warm-up would show as a small step, not as a weight a fifth as large for ever.",
            "b": "The lower radius is not read by this loss at all.",
            "c": "Its weights are constants by design, and the gradient flows through log π.",
            "d": "",
        },
        hint="What is a radius in one loss is an absolute ratio in another. What is ρ before anything has moved?",
        reason="The cap is a ratio: at 0.2 every weight is 0.2, since ρ starts at 1. The book's default is 5.",
    ),
    "trainer-7": Number(
        answer=lambda: math.exp(100 * 0.012),
        hint="The mismatch of a sequence is the sum over its tokens, and a ratio is its exponential.",
        reason="A difference in the third digit of one token is a factor of more than three for a hundred.",
        mistakes=(
            (lambda: 100 * 0.012, "That is the log-ratio of the sequence, in nats. The ratio is its exponential."),
            (lambda: math.exp(0.012), "That is the ratio of one token."),
        ),
    ),
}
