"""Exercises of chapter 3: baselines without a critic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from labsrc import advantages, baselines, exact
from labsrc.binary_groups import wasted_share
from labsrc.labs.exercises.kinds import Choice, Code, Number

ONE_RIGHT = [1.0, 0.0, 0.0, 0.0]


def _best_of_group(ddof: int = 0) -> float:
    return advantages.standardized(ONE_RIGHT, std_eps=0.0, ddof=ddof)[0].item()


def _lopsided_coin() -> float:
    return baselines.best_baseline([math.log(0.9), math.log(0.1)], [0.0, 1.0]).item()


def _weight(p: float) -> float:
    return exact.standardized_objective_weight(p, group_size=8).item()


def _advantages_trial(function: Callable[..., Any]) -> str | None:
    cases = [
        [0.2, 0.8, 1.4, 0.6],
        [1.0, 0.0],
        [1.0, None, 0.0, 1.0],
        [None, 3.0, None, None],
        [None, None],
        [0.1, 0.1, 0.1],
        [0.3, None, 0.3, 0.3, 0.3, 0.3, 0.3],
    ]
    for rewards in cases:
        numbers = [math.nan if reward is None else reward for reward in rewards]
        wanted = advantages.standardized_excluding_missing(numbers, std_eps=1e-4)
        found = torch.as_tensor(function(list(rewards)), dtype=torch.float64)
        if found.shape != wanted.shape:
            return f"for {rewards} it gives {found.tolist()}, wanted {len(rewards)} numbers"
        # An equal group must give exact zeros: a residue of rounding over a small std_eps is no longer small.
        exact_zeros = bool((found[wanted == 0] == 0).all())
        if not exact_zeros or not torch.allclose(found, wanted, rtol=0, atol=1e-9):
            return f"for {rewards} it gives {found.tolist()}, wanted {[round(x, 6) for x in wanted.tolist()]}"
    return None


EXERCISES = {
    "group-1": Number(
        answer=_best_of_group,
        hint="The mean is 1/4. The squared distances from it are 9/16 once and 1/16 three times.",
        reason="The mean is 1/4, the variance 3/16: A = (3/4)/√(3/16) = √3.",
        mistakes=(
            (lambda: _best_of_group(1), "That divides by the sample deviation (G − 1 = 3). The question says G."),
            (lambda: 0.75, "That is the centred reward. Divide it by the deviation."),
            (lambda: 0.75 / (3 / 16), "That divides by the variance. Take its root first."),
        ),
    ),
    "group-2": Number(
        answer=lambda: wasted_share(0.2, group_size=4).item(),
        hint="There are two ways to be all equal: all right, or all wrong.",
        reason="0.2⁴ + 0.8⁴: nearly all of it is four wrong answers.",
        mistakes=(
            (lambda: 0.2**4, "That is the chance that all are right. All wrong is also a group of equals."),
            (lambda: 0.8**4, "That is the chance that all are wrong. All right is also a group of equals."),
            (lambda: 1 - 0.2**4 - 0.8**4, "That is the share of groups that are of use."),
        ),
    ),
    "group-3": Number(
        answer=lambda: 5 / 4,
        hint="The expected gradient is (1 − 1/G)·∇J. What undoes that factor?",
        reason="G/(G − 1) = 5/4: the group mean becomes the mean of the others.",
        mistakes=(
            (lambda: 4 / 5, "That is the factor that is already there. You want the one that undoes it."),
            (lambda: 5.0, "That would undo a factor of 1/G. The factor is 1 − 1/G."),
        ),
    ),
    "group-4": Number(
        answer=_lopsided_coin,
        hint="b* = E[r‖s‖²]/E[‖s‖²]. The score of the second answer is (−0.9, 0.9), of the first (0.1, −0.1).",
        reason="0.162/0.18 = 0.9, far from E[r] = 0.1; the variance is then 0.",
        mistakes=(
            (lambda: 0.1, "That is E[r]. The average has to be weighted by the squared length of the score."),
            (lambda: 0.0, "Without a baseline the rare right answer gives a large gradient and all others give none."),
        ),
    ),
    "group-5": Choice(
        correct="c",
        options={
            "a": "The policy term of the gradient is zero. Is the surrogate the only term of this loss?",
            "b": "Every advantage is zero, so no answer is better than another. Where would the best one come from?",
            "c": "",
            "d": "An optimiser's state could add a step, but plain gradient descent has no state.",
        },
        hint="Write down the gradient of each term of the loss on its own.",
        reason="With all advantages zero, the KL term is alone.",
    ),
    "group-6": Choice(
        correct="b",
        options={
            "a": "Its expected gradient is (1 − 1/G)·∇J: the direction is right, the length is not.",
            "b": "",
            "c": "The divisor depends on the sampled group. Look again at the ratios of the components.",
            "d": "A deviation over the batch is still computed from the samples, and the group mean is in it too.",
        },
        hint="For which of them does the enumeration print ∇J itself, at every G?",
        reason="The mean of the others does not depend on the answer itself.",
    ),
    "group-7": Number(
        answer=lambda: _weight(0.02) / _weight(0.5),
        hint="Use exact.standardized_objective_weight with group_size=8, and divide the two weights.",
        reason="Standardising favours prompts that nearly always fail or succeed.",
        mistakes=(
            (
                lambda: math.sqrt(0.25 / (0.02 * 0.98)),
                "That is the limit of endless groups, 1/√(p(1 − p)). With G = 8 it is smaller.",
            ),
            (lambda: _weight(0.02), "That is the weight of the hard prompt alone."),
            (lambda: _weight(0.5) / _weight(0.02), "That is the easy prompt against the hard one."),
        ),
    ),
    "group-8": Code(
        trial=_advantages_trial,
        hint="Keep the rewards that are not None. If they are all equal, or fewer than two, return zeros.",
        reason="A missing reward is no information: it must not move anything.",
    ),
}
