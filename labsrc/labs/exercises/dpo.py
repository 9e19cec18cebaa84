"""Exercises of chapter 2: from pairs to DPO, what it converges to, and its family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from labsrc import preference
from labsrc.labs.exercises.kinds import Choice, Code, Number

# Exercise 2: chosen and rejected under the policy, then both under the reference.
PAIR, PAIR_BETA = (-12.0, -11.0, -14.0, -12.5), 0.5
AGREEMENT, ODDS_BETA = 0.75, 0.2
IPO_AGREEMENT, IPO_BETA = 0.9, 0.25


def _win(gap: float) -> float:
    return preference.preference_log_prob(gap, 0.0).exp().item()


def _pair_loss(*, beta: float = PAIR_BETA, reference: bool = True) -> float:
    pair = PAIR if reference else (*PAIR[:2], 0.0, 0.0)
    return preference.dpo_loss(*pair, beta=beta).item()


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _ipo_minimum() -> float:
    # Where the mean of (h − target)² and (−h − target)², weighted by agreement, is least.
    return (2 * IPO_AGREEMENT - 1) / (2 * IPO_BETA)


def _loss_trial(loss: Callable[..., Any]) -> str | None:
    cases = {
        "two tokens against three": ([-1.0, -1.2], [-0.5, -0.9, -1.4], [-0.8, -1.2], [-0.7, -0.8, -0.9], 0.1),
        "policy = reference": ([-1.0], [-2.0, -0.5], [-1.0], [-2.0, -0.5], 0.3),
        "a margin of −2000 nats": ([-1500.0], [-0.5], [-0.5], [-500.5], 1.0),
        "a margin of +2000 nats": ([-0.5], [-1500.5], [-500.5], [-0.5], 1.0),
    }
    for name, (*tokens, beta) in cases.items():
        found = float(loss(*tokens, beta))
        wanted = preference.dpo_loss(*(sum(row) for row in tokens), beta=beta).item()
        if not math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9):
            return f"for {name} it gives {found:.6g}, wanted {wanted:.6g}"
    return None


EXERCISES = {
    "dpo-1": Number(
        answer=lambda: _win(1.0),
        hint="Bradley–Terry: σ of the difference of the rewards, σ(x) = 1/(1 + e^(−x)).",
        reason="σ(3 − 2) = σ(1): only the difference counts, not that the rewards are 3 and 2.",
        mistakes=(
            (lambda: math.e, "Those are the odds, e to 1. The probability is odds/(1 + odds)."),
            (lambda: 1 - _win(1.0), "That is how often the other answer is chosen."),
            (lambda: 3 / 5, "The strengths are e³ and e², not 3 and 2."),
        ),
    ),
    "dpo-2": Number(
        answer=_pair_loss,
        hint="First h = (−12 + 14) − (−11 + 12.5), then the logit β·h, then −log σ of it.",
        reason="h = 2 − 1.5 = 0.5 nats, the logit is 0.25. The loss log(1 + e^(−0.25)) is below ln 2, although the "
        "policy still gives the rejected answer the higher probability.",
        mistakes=(
            (lambda: 0.25, "That is the logit β·h. The loss is −log σ of it."),
            (lambda: _pair_loss(reference=False), "That leaves the reference out."),
            (lambda: _pair_loss(beta=1.0), "That leaves β out."),
            (lambda: math.log(1 + math.exp(0.25)), "The sign of the logit is turned round."),
        ),
    ),
    "dpo-3": Number(
        answer=lambda: math.exp(_logit(AGREEMENT) / ODDS_BETA),
        hint="At the optimum σ(β·h) = 0.75, so h = logit(0.75)/β. The odds between the two answers grow by e^h.",
        reason="h = log 3/0.2, so the odds grow by 3^(1/0.2) = 3⁵ = 243.",
        mistakes=(
            (lambda: _logit(AGREEMENT) / ODDS_BETA, "That is the margin h in nats. The odds grow by e^h."),
            (lambda: 3.0, "That would be β = 1. The odds are 3 to the power 1/β."),
            (lambda: 3**ODDS_BETA, "The logit is divided by β, not multiplied by it."),
        ),
    ),
    "dpo-4": Number(
        answer=lambda: _logit(0.99) / 0.1,
        hint="The weight is σ(−β·h). Which number has σ of it equal to 0.01? Then divide by −β.",
        reason="σ(−0.1·h) = 0.01 means 0.1·h = log 99: with a small β, a pair pushes on for a long way.",
        mistakes=(
            (lambda: _logit(0.99), "That is β·h. Divide it by β = 0.1."),
            (lambda: -_logit(0.99) / 0.1, "There the weight is 0.99: the pair is on the wrong side."),
        ),
    ),
    "dpo-5": Choice(
        correct="b",
        options={
            "a": "The loss sees the margin only. A chosen answer that falls breaks none of its rules.",
            "b": "",
            "c": "The loss allows this at any step size: compare the two policies of the counter-example.",
            "d": "The loss fell, so the margin h grew, and the weight σ(−β·h) falls as h grows.",
        },
        hint="Write h as a difference of two log-ratios. One of them has fallen, and the difference has grown.",
        reason="h = [log π/π_ref of the chosen] − [the same of the rejected]. The first fell and h grew, so the second "
        "fell further.",
    ),
    "dpo-6": Number(
        answer=_ipo_minimum,
        hint="Minimise 0.9·(h − t)² + 0.1·(−h − t)² over h, where t = 1/(2β).",
        reason="Setting the derivative to zero gives h = (2·0.9 − 1)·t = 0.8·2 nats. IPO goes a share of the way to "
        "its target, and the whole way when all labels agree.",
        mistakes=(
            (lambda: 1 / (2 * IPO_BETA), "That is the target, which is reached when all labels agree."),
            (lambda: _logit(IPO_AGREEMENT) / IPO_BETA, "That is where DPO stops."),
            (lambda: IPO_AGREEMENT / (2 * IPO_BETA), "The flipped labels pull back: 0.9 − 0.1, not 0.9."),
        ),
    ),
    "dpo-7": Choice(
        correct="c",
        options={
            "a": "No label compares a or b with c or d. What in the loss could tell you how π(a) relates to π(c)?",
            "b": "Each of the two pairs is labelled both ways often enough: its own odds are settled.",
            "c": "",
            "d": "The reference enters each pair's margin. It does not say where the two pairs stand to each other.",
        },
        hint="Add the same number to the logits of a and b. Which margins change?",
        reason="The margins inside {a, b} and inside {c, d} are settled. A shift of both logits of one pair changes no "
        "margin, so the split of the mass between the pairs is left to the start and the optimiser.",
    ),
    "dpo-8": Code(
        trial=_loss_trial,
        hint="Sum each list, form the logit z, and use −log σ(z) = max(0, −z) + log(1 + e^(−|z|)).",
        reason="Sums over tokens, a difference of differences, and log σ without the exponential of a large number.",
    ),
}
