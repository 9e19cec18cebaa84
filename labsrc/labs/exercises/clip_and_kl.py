"""Exercises of chapter 4: the clip and the KL estimators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, exact, kl, kl_estimators, policy_gradient
from labsrc.labs.exercises.kinds import Choice, Code, Number

RADII = {"clip_low": 0.2, "clip_high": 0.2}


def _surrogate(ratio: float, advantage: float) -> float:
    return policy_gradient.clipped_surrogate([math.log(ratio)], [advantage], **RADII).item()


def _slope(ratio: float, advantage: float) -> float:
    """Derivative of the surrogate by log π."""
    log_ratio = checks.float_tensor("log_ratio", [math.log(ratio)]).requires_grad_()
    policy_gradient.clipped_surrogate(log_ratio, [advantage], **RADII).sum().backward()
    return log_ratio.grad.item()


def _estimate(estimator: Callable[..., Tensor], p: float, q: float) -> float:
    return estimator([math.log(p)], [math.log(q)]).item()


def _surrogate_trial(surrogate: Callable[..., Any]) -> str | None:
    wide = {"clip_low": 0.2, "clip_high": 0.28}
    cases = [(1.5, 1.0), (0.5, 1.0), (0.5, -1.0), (1.5, -1.0), (1.25, 2.0), (0.9, -2.0), (1.0, 0.0)]
    for ratio, advantage in cases:
        found = float(surrogate(ratio, advantage, wide["clip_low"], wide["clip_high"]))
        wanted = policy_gradient.clipped_surrogate([math.log(ratio)], [advantage], **wide).item()
        if not math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12):
            case = f"ρ = {ratio}, A = {advantage}, radii 0.2 and 0.28"
            return f"for {case} it gives {found:.4g}, wanted {wanted:.4g}"
    return None


def _penalty_trial(penalty: Callable[..., Any]) -> str | None:
    """Run the reader's penalty as a placement of its own, on samples of two policies."""
    policies = [
        ([0.1, 0.4, 0.9], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]),
        ([1.0, -0.5, 0.2], [0.2, 0.3, 0.5], [0.6, 0.1, 0.3]),
    ]
    for logits, reference, old in policies:
        logits, logits_ref, logits_old = (checks.float_tensor("p", p) for p in (logits, reference, old))
        logits_ref, logits_old = logits_ref.log(), logits_old.log()
        wanted = exact.kl_gradient(logits, logits_ref)
        for sampler, name in ((logits, "π itself"), (logits_old, "another policy")):
            found = kl_estimators.gradient_moments(
                lambda _, logp, logp_old, logp_ref: penalty(logp, logp_old, logp_ref),
                kl.kl_k1,
                logits,
                logits_ref,
                logits_old=sampler,
            ).mean
            if not torch.allclose(found, wanted, rtol=0, atol=1e-9):
                return f"on samples of {name} its gradient is {_rounded(found)}, wanted {_rounded(wanted)}"
    return None


def _rounded(tensor: Tensor) -> list[float]:
    return [round(value, 5) for value in tensor.flatten().tolist()]


EXERCISES = {
    "clip-1": Number(
        answer=lambda: _surrogate(1.5, -2.0),
        hint="Write down both products, ρA and clip(ρ)·A, and take the smaller one.",
        reason="min(−3, −2.4) = −3: the ratio went the wrong way, so the clip leaves it alone.",
        mistakes=(
            (lambda: 1.2 * -2.0, "That is clip(ρ)·A. The minimum looks at both products, and −3 is smaller."),
            (lambda: 0.8 * -2.0, "That uses the lower edge. A ratio of 1.5 is clipped to 1.2, if at all."),
            (lambda: 1.5 * 2.0, "The sign of the advantage is lost."),
        ),
    ),
    "clip-2": Number(
        answer=lambda: _slope(0.5, 1.0),
        hint="Is the token past the edge its advantage asks for? If not, differentiate ρA; dρ/d log π is ρ.",
        reason="The token is good and has lost probability, so nothing is clipped, and the slope is ρA = 0.5.",
        mistakes=(
            (lambda: 0.0, "It is outside the interval, but on the wrong side for its advantage: it keeps its slope."),
            (lambda: 1.0, "That is the slope by ρ. By log π it is ρ times as large."),
            (lambda: 0.8, "That is the lower edge, a value and not a slope."),
        ),
    ),
    "clip-3": Number(
        answer=lambda: _estimate(kl.kl_k3, 0.5, 0.25),
        hint="Δ = log π_ref − log π = log 0.5. Then e^Δ − Δ − 1.",
        reason="Δ = −log 2, so k3 = 0.5 + log 2 − 1.",
        mistakes=(
            (lambda: _estimate(kl.kl_k3, 0.25, 0.5), "That has π and π_ref exchanged: Δ is reference minus policy."),
            (lambda: _estimate(kl.kl_k1, 0.5, 0.25), "That is k1 = −Δ."),
            (lambda: _estimate(kl.kl_k2, 0.5, 0.25), "That is k2 = Δ²/2."),
        ),
    ),
    "clip-4": Code(
        trial=_surrogate_trial,
        hint="Clip the ratio to [1 − low, 1 + high], form both products, return the smaller.",
        reason="Both products first, the minimum last: that order is what lets a wrong-way ratio keep its slope.",
    ),
    "clip-5": Number(
        answer=lambda: float(2 * (8192 // 1024) - 1),
        hint="Count the optimiser steps first. Which of them is taken while π is still equal to π_old?",
        reason="Two passes over 8 mini-batches are 16 steps, and only the very first one finds π = π_old.",
        mistakes=(
            (lambda: 16.0, "That counts every step. The first one is still on-policy."),
            (lambda: 14.0, "Only the first step of all is on-policy: π_old is not renewed between the passes."),
            (lambda: 7.0, "That is one pass. The batch is used twice."),
            (lambda: 1.0, "The policy moves at every mini-batch, not once a pass."),
        ),
    ),
    "clip-6": Number(
        answer=lambda: (1 - 1.2 * 0.75) / 0.25,
        hint="At rest every good answer has at least 1.2 times its old probability. How much is left for the bad ones?",
        reason="1 − 1.2·0.75 = 0.1 is left of the 0.25 they had: 0.4 times as much, well below 0.8.",
        mistakes=(
            (lambda: 0.8, "That is where their own incentive ends. The good answers push on until they are at 1.2."),
            (lambda: 1 - 1.2 * 0.75, "That is the probability that is left. Divide by the 0.25 they had."),
            (lambda: 1.2, "That is the ratio of the good answers."),
        ),
    ),
    "clip-7": Choice(
        correct="c",
        options={
            "a": "Its mean is the KL, on samples of π. But a reward is not differentiated, so what does the mean help?",
            "b": "k3 is never negative. The sign of the cost is not the trouble.",
            "c": "",
            "d": "As a *loss* it has that gradient. In the reward k3 itself is the weight on ∇log π.",
        },
        hint="In the reward, an estimate becomes the weight on ∇log π. Which weight gives ∇KL?",
        reason="The weight has to be −Δ up to a constant. k3 is not, so the gradient is neither KL's.",
    ),
    "clip-8": Code(
        trial=_penalty_trial,
        hint="Two of the thirty cells are right in the loss on samples of any policy and keep ρ in the graph. "
        "Which estimators are they?",
        reason="The gradient is ∇KL(π‖π_ref) on samples of π and of another policy.",
    ),
    "clip-9": Choice(
        correct="b",
        options={
            "a": "The token's own term is right. What does the choice of this token change further on?",
            "b": "",
            "c": "The ratio of the token corrects for this token only. Which later terms does the token reach?",
            "d": "Unbiased for what? Each token's KL given its prefix is right; the prefix depends on the policy too.",
        },
        hint="The first token decides which second-token distributions are visited.",
        reason="A token changes which prefixes come later, and with them the KL that is still to be paid.",
    ),
}
