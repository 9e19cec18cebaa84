"""Exercises of chapter 1: the KL-regularised objective and its closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labsrc import checks, closed_form
from labsrc.kl import kl_divergence
from labsrc.labs.exercises.kinds import Choice, Code, Number

WORKED = {"q": [0.2, 0.3, 0.5], "rewards": [-0.5, 0.7, 1.1]}
WORKED_BETA = 0.6


def _tilted_coin() -> float:
    return closed_form.optimal_policy([0.5, 0.5], [0.0, 1.0], beta=1.0)[1].item()


def _log_z() -> float:
    return closed_form.log_partition(**WORKED, beta=WORKED_BETA).item()


def _best_reward() -> float:
    best = closed_form.optimal_policy(**WORKED, beta=WORKED_BETA)
    return (best * checks.float_tensor("rewards", WORKED["rewards"])).sum().item()


def _farthest() -> float:
    corner = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return kl_divergence(corner, WORKED["q"]).item()


def _policy_trial(policy: Callable[..., Any]) -> str | None:
    cases = [
        ([0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], 0.6),
        ([0.25, 0.25, 0.5], [3.0, -2.0, 0.5], 2.0),
        ([0.5, 0.5], [0.0, 1000.0], 0.1),
        ([0.5, 0.5], [-1000.0, -1001.0], 0.5),
        ([0.5, 0.5, 0.0], [0.0, 1.0, 9.0], 1.0),
        ([0.5, 0.5, 0.0], [0.0, 1.0, 1000.0], 0.1),
    ]
    for q, rewards, beta in cases:
        case = f"q = {q}, rewards = {rewards}, beta = {beta}"
        try:
            answer = policy(list(q), list(rewards), beta)
        except Exception as error:  # whatever a reader's code raises is told, with the case that raised it
            return f"for {case} it raises {type(error).__name__}: {error}"
        if answer is None:
            return "it returns None; return the list of probabilities"
        found = torch.as_tensor(answer, dtype=torch.float64)
        wanted = closed_form.optimal_policy(q, rewards, beta=beta)
        if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=0, atol=1e-9):
            return f"for {case} it gives {_rounded(found)}, wanted {_rounded(wanted)}"
    return None


def _rounded(tensor: torch.Tensor) -> list[float]:
    return [round(value, 6) for value in tensor.flatten().tolist()]


EXERCISES = {
    "kl-1": Number(
        answer=_tilted_coin,
        hint="Multiply each probability by exp(reward/β), then divide by the sum of the two.",
        reason="The odds were 1 : 1 and are now 1 : e, so the probability is e/(1 + e).",
        mistakes=(
            (lambda: math.e / 2, "That is q·exp(r/β) before it is divided by Z: it is larger than 1."),
            (lambda: 1 - _tilted_coin(), "That is the other action's probability."),
            (lambda: 100 * _tilted_coin(), "As a probability, please: a number between 0 and 1."),
            (lambda: 0.5, "That is where q has it. The reward multiplies its weight by e."),
        ),
    ),
    "kl-2": Number(
        answer=lambda: WORKED_BETA * _log_z(),
        hint="At p = p* the KL term of the Gibbs identity is zero. What is left?",
        reason="At p* the identity leaves β·log Z, which is also E[r] − β·KL computed term by term.",
        mistakes=(
            (_log_z, "That is log Z, in nats. The objective is in units of reward: multiply by β."),
            (lambda: math.exp(_log_z()), "That is Z itself. Take its logarithm, and multiply by β."),
            (_best_reward, "That is E[r] under p*, before the price β·KL is paid."),
            (lambda: 1.1, "That is the reward of the best answer. The KL of going there has to be paid."),
            (lambda: 0.66, "That is the objective at q, where nothing is paid and nothing gained."),
        ),
    ),
    "kl-3": Number(
        answer=lambda: 2 / math.log(100),
        hint="The odds are multiplied by exp(gap/β). Set that equal to 100 and solve for β.",
        reason="Odds of 100 need gap/β = log 100, so β = 2/log 100.",
        mistakes=(
            (lambda: math.log(100) / 2, "That is 1/β: the gap is divided by β, not multiplied."),
            (lambda: 1.0, "That uses the logarithm to base 10. Nats use the natural one."),
            (lambda: 2 / 100, "The odds are exponential in gap/β, not proportional to it."),
        ),
    ),
    "kl-4": Number(
        answer=_farthest,
        hint="Where does all the mass go as β → 0? Write that policy down, then its KL from q.",
        reason="KL → −log q(best) = log 2, and no tilt is ever farther from q than that.",
        mistakes=(
            (lambda: math.log(3), "That is −log(1/3), which would need a uniform reference."),
            (lambda: 1.0, "That is in bits. Nats use the natural logarithm."),
            (lambda: -math.log(2), "A KL is never negative: look at the sign."),
            (lambda: 0.0, "That is the other limit, β → ∞."),
        ),
    ),
    "kl-5": Choice(
        correct="b",
        options={
            "a": "exp((r + 5)/β) is exp(r/β)·exp(5/β). The second factor is the same for all answers.",
            "b": "",
            "c": "KL(p*‖q) depends on p* and q only. Does p* change?",
            "d": "The objective contains E[r]. What happens to E[r] when each reward rises by 5?",
        },
        hint="Put r + 5 into q·exp(r/β)/Z, above and below the line.",
        reason="The factor exp(5/β) cancels against Z, so p* stays; log Z rises by 5/β, and the best objective by 5.",
    ),
    "kl-6": Code(
        trial=_policy_trial,
        hint="Subtract the largest r/β, among the answers with q > 0, before you take the exponential; an answer with "
        "q = 0 has weight 0.",
        reason="Subtracting the largest exponent changes nothing: it cancels in Z. But now no exponential overflows.",
    ),
}
