"""Lab *baseline_bias* (chapter 3): the exact gradient beside the mean of four group estimators, every group visited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import atan2, degrees, nan, sqrt
from typing import Any

import torch
from torch import Tensor

from labsrc.advantages import centered, leave_one_out, standardized
from labsrc.exact import group_gradient_moments, standardized_objective_weight, value_gradient
from labsrc.labs.controls import Choice, Column, Preset, Slider, State, Table
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Bars, Curves, Grid, Line, Mark, Numbers, Sentence, Series, Tile

LARGE_GROUP = 64
# Where the weights are drawn: closer to 0 and 1 the limit leaves the frame.
SUCCESS = [index / 100 for index in range(2, 99)]
_PARALLEL = 1e-6  # degrees: what rounding makes of two gradients that are multiples of each other


def estimators(std_eps: float, ddof: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """What each estimator takes for the advantage of a reward within its group."""
    return {
        "raw": lambda rewards: rewards,
        "centered": centered,
        "leave_one_out": leave_one_out,
        "standardized": partial(standardized, std_eps=std_eps, ddof=ddof),
    }


def compute(state: State) -> dict[str, Any]:
    """∇J and the estimators' means on the logits (K,), their lengths, angles and spreads, and the curves w_G(p).

    state: group_size G, rewards and weights (K,), the weights divided by their sum being the policy; std_eps, ddof "0"
    or "1". Raises ValueError as `exact.group_gradient` does.
    """
    rewards, weights = (torch.tensor(state[key], dtype=torch.float64) for key in ("rewards", "weights"))
    group_size, ddof, p = state["group_size"], int(state["ddof"]), weights / weights.sum()
    logits, flat = p.log(), bool(rewards.max() == rewards.min())
    truth = value_gradient(logits, rewards)
    moments = {
        name: group_gradient_moments(logits, rewards, advantage_fn, group_size=group_size)
        for name, advantage_fn in estimators(state["std_eps"], ddof).items()
    }
    gradients = [truth, *(one.mean for one in moments.values())]
    lengths = [gradient.norm().item() for gradient in gradients]
    ratios = [nan if flat else length / lengths[0] for length in lengths]
    angles = [nan if flat else _angle(gradient, truth) for gradient in gradients]
    success = p[rewards == rewards.max()].sum().item()
    curve = torch.tensor(SUCCESS, dtype=torch.float64)
    weight = partial(standardized_objective_weight, ddof=ddof)
    binary = len(set(state["rewards"])) == 2
    here = weight(success, group_size=group_size).item() if binary else nan
    return {
        "p": p,
        "gradient_truth": truth,
        **{f"gradient_{name}": one.mean for name, one in moments.items()},
        "length": lengths,
        "length_ratio": ratios,
        "angle": angles,
        "spread": [0.0, *(max(one.variance, 0.0) ** 0.5 for one in moments.values())],
        "kept": ratios[2],
        "turned": angles[4],
        "scaled": ratios[4],
        "one_less": 1 - 1 / group_size,
        "groups": len(p) ** group_size,
        "success": success,
        "weight_here": here,
        "weight_limit_here": 1 / sqrt(success * (1 - success)) if binary else nan,
        "curve_p": curve,
        "curve_weight": weight(curve, group_size=group_size),
        "curve_large": weight(curve, group_size=LARGE_GROUP),
        "curve_limit": (curve * (1 - curve)).rsqrt(),
        "binary": binary,
        "flat": flat,
    }


def _angle(a: Tensor, b: Tensor) -> float:
    """The angle between two vectors in degrees; its half is that of sum and difference, exact where it is small."""
    a, b = a / a.norm(), b / b.norm()
    angle = degrees(2 * atan2((a - b).norm().item(), (a + b).norm().item()))
    return angle if angle > _PARALLEL else 0.0


baseline_bias = Lab(
    name="baseline_bias",
    title="What a baseline does to the gradient",
    lead=(
        "E[(1/G)·Σ A·∇log π] of every way to take A, beside ∇J. All K^G groups are visited: what differs is bias, not "
        "bad luck."
    ),
    prompt=(
        "G = 3. The group mean contains the sample itself. How much of ∇J is left in the mean gradient, and does its "
        "direction change? And what does dividing by the group's deviation add?"
    ),
    answer=(
        "Two thirds, 1 − 1/G, in the same direction: a smaller step, no other. Dividing by a deviation that is itself "
        "random turns the gradient: its components are no longer one multiple of those of ∇J."
    ),
    compute=compute,
    controls=(
        Slider("group_size", "G", "group size", 3, 2, 8, step=1, integer=True, format="d", lazy=True),
        Slider("std_eps", "ε std", "guard of the standard deviation", 1e-4, 1e-6, 1.0, log=True, lazy=True),
        Choice("ddof", "std", {"0": "population (ddof 0)", "1": "sample (ddof 1)"}, "0"),
        Table(
            row="action",
            columns=(
                Column("rewards", "reward", minimum=-100.0, maximum=100.0),
                Column("weights", "weight", minimum=0.01, maximum=10.0, fresh=0.1),
            ),
            values={"rewards": (-1.0, 0.2, 2.0), "weights": (0.2, 0.3, 0.5)},
            fewest_rows=2,
            most_rows=4,
            bars=Bars(
                series=(
                    Series("gradient_truth", "∇J", "truth", "~+.3f"),
                    Series("gradient_centered", "group mean", "part4", "~+.3f"),
                    Series("gradient_leave_one_out", "leave one out", "part1", "~+.3f"),
                    Series("gradient_standardized", "standardised", "part2", "~+.3f"),
                )
            ),
        ),
    ),
    presets=(
        Preset("Worked case", {}, "All 27 groups of three. Only the standardised gradient is not a multiple of ∇J."),
        Preset("G = 8", {"group_size": 8}, "The group mean keeps 7/8; the standardised gradient is still turned."),
        Preset(
            "Right or wrong",
            {"rewards": [1.0, 0.0], "weights": [0.1, 0.9], "group_size": 8},
            "With two reward values standardising cannot turn the gradient. It multiplies ∇p by w_G(p), more the "
            "rarer a success is. Move G: at 3 the weight is √2 for every p.",
        ),
        Preset(
            "As often as not",
            {"rewards": [1.0, 0.0], "weights": [0.5, 0.5], "group_size": 8},
            "At p = 0.5 the weight is smallest: the standardised objective weighs hard and easy prompts up.",
        ),
        Preset(
            "A rare, large reward",
            {"rewards": [0.0, 0.1, 10.0], "weights": [0.5, 0.48, 0.02], "group_size": 6},
            "Most groups lack c, and in the others its reward makes the deviation large: after the division 10 weighs "
            "little more than 0.1 does elsewhere, and the gradient turns by 76°.",
        ),
        Preset(
            "A large guard",
            {"std_eps": 1.0},
            "With ε std as large as the deviation the division is nearly by a constant: the angle shrinks.",
        ),
        Preset(
            "Rewards + 50",
            {"rewards": [49.0, 50.2, 52.0]},
            "No mean in any row changes, but look at the noise without a baseline: that is what a baseline is for.",
        ),
    ),
    panels=(
        Grid(
            columns=(
                Series("length", "length", "policy", "~.3f"),
                Series("length_ratio", "ratio", "policy", "~.3f"),
                Series("angle", "angle°", "policy", "~.2f"),
                Series("spread", "noise", "policy", "~.3f"),
            ),
            rows=("∇J", "no baseline", "group mean", "leave one out", "mean ÷ std"),
            corner="advantage",
            title="Mean gradient beside ∇J; noise of one group’s (root of its variance)",
        ),
        Numbers(
            tiles=(
                Tile("kept", "group mean keeps", ".4f", note="1 − 1/G = {one_less:.4f}"),
                Tile("turned", "standardised: angle°", "~.2f", note="length of ∇J’s: × {scaled:.4f}"),
                Tile("weight_here", "w_G(p)", ".4f", note="as G → ∞: {weight_limit_here:.4f}"),
                Tile("groups", "groups visited", "d"),
            ),
        ),
        Curves(
            x=Axis("p, the chance of the better of two rewards", (0.0, 1.0)),
            y=Axis("weight on ∇p", (0.0, 8.0)),
            lines=(
                Line("curve_p", "curve_limit", "reference", "G → ∞", at=0.08, side="right", dash="4 4"),
                Line("curve_p", "curve_large", "old", "G = 64", at=0.92, side="left", dash="2 3"),
                Line("curve_p", "curve_weight", "policy", "this G", at=0.6, side="below"),
            ),
            marks=(Mark("success", "weight_here", "policy", "{weight_here:.3f}"),),
            title="What standardising makes of a 0/1 reward",
            caption="Dashed: 1/√(p(1 − p)), the slope of 2·arcsin√p. Without standardising the weight is 1.",
            alt=(
                "Weight on the gradient of p against p. The limit rises steeply towards 0 and 1 and is 2 in the "
                "middle; for G = {group_size:d} the curve is flatter, {curve_weight[48]:.3f} in the middle."
            ),
        ),
    ),
    sentence=Sentence(
        cases=(
            ("flat", "All rewards are equal: ∇J is 0, and so is every mean gradient. Only “no baseline” is noisy."),
            (
                "binary",
                "Two reward values, p = {success:.3f}: the standardised gradient keeps its direction and is w_G(p) = "
                "{weight_here:.3f} times ∇p; the group mean keeps {kept:.3f} of ∇J.",
            ),
        ),
        otherwise=(
            "The group mean keeps {kept:.3f} of ∇J, leave-one-out all of it. Standardising turns it by {turned:~.2f}° "
            "and makes it {scaled:.3f} times as long."
        ),
    ),
    python=(
        "import torch\n\n"
        "from labsrc.advantages import centered, leave_one_out, standardized\n"
        "from labsrc.exact import group_gradient, value_gradient\n\n"
        "rewards, weights, group_size = {rewards:py}, {weights:py}, {group_size:py}\n"
        "p = torch.tensor(weights, dtype=torch.float64) / sum(weights)\n"
        "gradient_truth = value_gradient(p.log(), rewards)\n"
        "gradient_centered = group_gradient(p.log(), rewards, centered, group_size=group_size)\n"
        "gradient_leave_one_out = group_gradient(p.log(), rewards, leave_one_out, group_size=group_size)\n"
        "gradient_standardized = group_gradient(\n"
        "    p.log(), rewards, lambda r: standardized(r, std_eps={std_eps:py}, ddof={ddof}), group_size=group_size\n"
        ")\n"
        "print(gradient_truth, gradient_centered, gradient_leave_one_out, gradient_standardized)"
    ),
)
