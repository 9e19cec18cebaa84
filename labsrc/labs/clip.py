"""Lab *clip* (chapter 4): the clipped surrogate of one token, its slope, and the cases where the clip takes it away."""

from __future__ import annotations

from math import isnan
from typing import Any

import torch
from torch import Tensor

from labsrc.labs.controls import Preset, Slider, State, Toggle
from labsrc.labs.formats import format_value
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Curves, Grid, Line, Mark, Numbers, Region, Rule, Sentence, Series, Tile
from labsrc.policy_gradient import clipped_surrogate, dual_clipped_surrogate

# Right ends of the ratio's axis: a few fixed ones, so that the axis holds still while a handle is dragged.
SPANS = (2.0, 4.0, 6.0)
CASES = ("A > 0, ρ > 1+ε", "A > 0, ρ < 1−ε", "A < 0, ρ < 1−ε", "A < 0, ρ > 1+ε", "A < 0, ρ > c")
KEPT, CLIPPED, FLOOR, INSIDE = "kept: wrong way", "clipped: enough", "clipped: floor", "inside"
_FIRST_RATIO, _BESIDE, _ON_EDGE = 1e-3, 1e-4, 1e-9


def surrogate(ratio: Tensor, advantages: Tensor, state: State) -> Tensor:
    """The objective per token that the state asks for, with or without dual clip."""
    radii = {"clip_low": state["clip_low"], "clip_high": state["clip_high"]}
    if state["dual"]:
        return dual_clipped_surrogate(ratio.log(), advantages, dual_clip=state["dual_clip"], **radii)
    return clipped_surrogate(ratio.log(), advantages, **radii)


@torch.enable_grad()
def value_and_slope(ratios: list[float], advantages: list[float], state: State) -> tuple[list[float], list[float]]:
    """The objective at each ratio and its derivative there; NaN at a kink, where the two sides differ."""
    here, signal = torch.tensor([ratios, advantages], dtype=torch.float64)
    leaf = torch.stack([here - _ON_EDGE, here, here + _ON_EDGE]).requires_grad_()
    values = surrogate(leaf, signal, state)
    left, _, right = torch.autograd.grad(values.sum(), leaf)[0]
    slopes = torch.where((left - right).abs() > _ON_EDGE * signal.abs(), torch.nan, right)
    return values[1].tolist(), slopes.tolist()


def compute(state: State) -> dict[str, Any]:
    """Objective and slope at one ratio and along the axis, and where the regions lie.

    state: ratio > 0, advantage, clip_low and clip_high in (0, 1), dual, dual_clip > 1 + clip_high. Raises ValueError as
    `policy_gradient.dual_clipped_surrogate` does.
    """
    ratio, advantage, dual, floor = (state[key] for key in ("ratio", "advantage", "dual", "dual_clip"))
    low, high = 1 - state["clip_low"], 1 + state["clip_high"]
    span = next((end for end in SPANS if end >= max(ratio + 0.25, floor + 0.5 if dual else 0.0)), SPANS[-1])
    edges = [low, high, *([floor] if dual else [])]
    near = [edge + step for edge in edges for step in (-_BESIDE, 0.0, _BESIDE)]
    xs = [_FIRST_RATIO, *near, span]
    (value, *curve_value), (slope, *curve_slope) = value_and_slope([ratio, *xs], [advantage] * (len(xs) + 1), state)
    case = _case(ratio, advantage, state)
    has_floor = dual and advantage < 0
    shaded = (high, span) if advantage > 0 else (0.0, low) if advantage < 0 else (0.0, 0.0)
    unclipped = [_FIRST_RATIO * advantage, span * advantage]
    return {
        "ratio_here": ratio,
        "objective": value,
        "slope": slope,
        "unclipped": ratio * advantage,
        "low": low,
        "high": high,
        "ratio_axis": [0.0, span],
        "value_axis": _axis([0.0, *curve_value, *unclipped]),
        "slope_axis": _axis([0.0, advantage], below=0.3, above=0.35),
        "curve_ratio": xs,
        "curve_value": curve_value,
        "curve_slope": curve_slope,
        "line_ratio": [_FIRST_RATIO, span],
        "line_value": unclipped,
        "line_slope": [advantage, advantage],
        "shaded_start": shaded[0],
        "shaded_end": shaded[1],
        "floor_start": floor if has_floor else span,
        "region_end": span,
        **_names(advantage, has_floor=has_floor, wide=span == SPANS[0]),
        "case_slope": _case_slopes(state),
        "case_name": [CLIPPED, KEPT, CLIPPED, KEPT, *([FLOOR] if dual else [])],
        "case_now": ["●" if case == index else "" for index in range(5 if dual else 4)],
        "no_signal": advantage == 0,
        "on_policy": abs(ratio - 1) < _ON_EDGE,
        "on_kink": isnan(slope),
        "is_floored": case == 4,
        "is_clipped": case in (0, 2),
        "is_kept": case in (1, 3),
        "edge": high if ratio > 1 else low,
        "surrogate": "dual_clipped_surrogate" if dual else "clipped_surrogate",
        "more_radii": f", dual_clip={format_value(floor, 'py')}" if dual else "",
    }


def _names(advantage: float, *, has_floor: bool, wide: bool) -> dict[str, str]:
    """What stands at the top of each region; the outcome alone where the axis is long and the regions are narrow."""
    low, high = (KEPT, CLIPPED) if advantage > 0 else (CLIPPED, KEPT)
    names = {"low": low, "inside": INSIDE, "high": high, "floor": FLOOR if has_floor else ""}
    if advantage == 0:
        names = {"low": "", "inside": "no signal", "high": "", "floor": ""}
    elif not wide:
        names = {key: "" if key == "inside" else name.split(":")[0] for key, name in names.items()}
    return {f"name_{key}": name for key, name in names.items()}


def _case(ratio: float, advantage: float, state: State) -> int:
    """The index in CASES of what holds now; -1 inside the interval, on its edges and without a signal."""
    low, high = 1 - state["clip_low"] - _ON_EDGE, 1 + state["clip_high"] + _ON_EDGE
    if advantage == 0 or low <= ratio <= high:
        return -1
    if advantage > 0:
        return 0 if ratio > high else 1
    if ratio < low:
        return 2
    return 4 if state["dual"] and ratio > state["dual_clip"] + _ON_EDGE else 3


def _case_slopes(state: State) -> list[float]:
    """The objective's slope in each case, taken half-way into its region, for an advantage of this size."""
    size, low, high = abs(state["advantage"]), 1 - state["clip_low"], 1 + state["clip_high"]
    above, below = (high + 2.0) / 2, low / 2
    ratios, advantages = [above, below, below, above], [size, size, -size, -size]
    if state["dual"]:
        ratios, advantages = [*ratios, state["dual_clip"] + 1.0], [*advantages, -size]
    return value_and_slope(ratios, advantages, state)[1]


def _axis(values: list[float], below: float = 0.15, above: float = 0.15) -> list[float]:
    """The ends of an axis with room below the values for a label, and above them for the regions' names."""
    low, high = min(values), max(values)
    size = high - low if high > low else 1.0
    return [low - below * size, high + above * size]


_REGIONS = (
    Region("shaded_start", "shaded_end"),
    Region("floor_start", "region_end"),
    Region(0.0, "low", "{name_low}", shaded=False),
    Region("low", "high", "{name_inside}", shaded=False),
    Region("high", "floor_start", "{name_high}", shaded=False),
    Region("floor_start", "region_end", "{name_floor}", shaded=False),
)
_EDGES = (Rule("x", "low"), Rule("x", "high"))


def _at(ratio: float, **settings: Any) -> State:
    usual = {"advantage": 1.0, "clip_low": 0.2, "clip_high": 0.2, "dual": False, "dual_clip": 3.0}
    return {"ratio": ratio, **usual, **settings}


clip = Lab(
    name="clip",
    title="The clip, token by token",
    lead="min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high)·A): the clip ends the incentive to go on, it does not hold ρ.",
    prompt="ε = 0.2 and A = −1. At ρ = 0.5, and at ρ = 1.5: does the token still have a gradient?",
    answer=(
        "At 0.5 no: A < 0 asked for a smaller ρ and got more than enough. At 1.5 yes, and in full: ρ went the wrong "
        "way, and the way back must stay open. A ratio outside the interval is not by itself a clipped one."
    ),
    compute=compute,
    controls=(
        Slider("ratio", "ρ", "rho, the ratio of new to old probability", 1.5, 0.02, 5.0, format=".3g"),
        Slider("advantage", "A", "the advantage", 1.0, -3.0, 3.0, step=0.05, format=".3g"),
        Slider("clip_low", "ε low", "clip radius below 1", 0.2, 0.01, 0.9, format=".3g"),
        Slider("clip_high", "ε high", "clip radius above 1", 0.2, 0.01, 0.9, format=".3g"),
        Toggle("dual", "dual clip: a floor at c·A for A < 0"),
        Slider("dual_clip", "c", "dual clip, the ratio where the floor begins", 3.0, 2.0, 5.0, step=0.1, format=".3g"),
    ),
    presets=(
        Preset(
            "On policy",
            _at(1.0),
            "The first update after sampling: ρ = 1 for every token. The clip does nothing, and the gradient is that "
            "of plain policy gradient.",
        ),
        Preset("A > 0, enough", _at(1.5), "Past 1 + ε in the direction A asks for: flat, no gradient."),
        Preset("A > 0, wrong way", _at(0.5), "Below 1 − ε although A asks for more: the gradient stays."),
        Preset("A < 0, enough", _at(0.5, advantage=-1.0), "A < 0 asked for less and got it: flat."),
        Preset(
            "A < 0, wrong way",
            _at(1.5, advantage=-1.0),
            "Above 1 + ε although A asks for less: the gradient stays, and the objective falls without a floor. Drag "
            "ρ up.",
        ),
        Preset(
            "Dual clip",
            _at(3.5, advantage=-1.0, dual=True),
            "The same side with a floor at c·A: a token that is bad and has become very likely stops pushing. That "
            "bounds the size of an update, and takes the way back from just the tokens that went furthest.",
        ),
        Preset(
            "Clip higher",
            _at(1.25, clip_high=0.28),
            "A wider radius above than below (0.28 and 0.2, as in DAPO): at ρ = 1.25 a good token still gains.",
        ),
    ),
    panels=(
        Numbers(
            tiles=(
                Tile("objective", "objective", "~.4f", note="ρA = {unclipped:~.4f}"),
                Tile("slope", "d objective / dρ", "~.4f", note="A = {advantage:.4g}"),
            ),
        ),
        Curves(
            x=Axis("ρ", "ratio_axis"),
            y=Axis("objective", "value_axis"),
            lines=(
                Line("line_ratio", "line_value", "reference", dash="4 4"),
                Line("curve_ratio", "curve_value", "policy"),
            ),
            marks=(Mark("ratio_here", "objective", "policy", "{objective:~.3g}"),),
            rules=_EDGES,
            regions=_REGIONS,
            caption="Dashed: ρA without a clip. Shaded: no gradient.",
            alt=(
                "Objective against the ratio from 0 to {region_end:.2g}: it follows the straight line ρA and is flat "
                "where the clip holds. At ρ = {ratio:.4g} it is {objective:~.4f}."
            ),
        ),
        Curves(
            x=Axis("ρ", "ratio_axis"),
            y=Axis("its gradient, d objective / dρ", "slope_axis"),
            lines=(
                Line("line_ratio", "line_slope", "reference", dash="4 4"),
                Line("curve_ratio", "curve_slope", "policy"),
            ),
            marks=(Mark("ratio_here", "slope", "policy", "{slope:~.3g}"),),
            rules=_EDGES,
            regions=_REGIONS,
            alt=(
                "Slope of the objective against the ratio: A where the token counts, 0 in the shaded regions. At "
                "ρ = {ratio:.4g} it is {slope:~.4f}."
            ),
            height=130,
        ),
        Grid(
            columns=(
                Series("case_name", "what the clip does", "policy", "text"),
                Series("case_slope", "gradient", "policy", "~.2f"),
                Series("case_now", "now", "policy", "text"),
            ),
            rows=CASES,
            corner="case",
        ),
    ),
    sentence=Sentence(
        cases=(
            ("no_signal", "A = 0: the token says neither more nor less, whatever ρ is. Objective and gradient are 0."),
            (
                "on_policy",
                "ρ = 1, as in the first update of every batch: objective A = {objective:.4g}, gradient A. Nothing can "
                "be clipped yet: this is plain policy gradient.",
            ),
            (
                "on_kink",
                "ρ = {ratio:.4g} is the edge itself. The objective bends there: its slope is A on one side and 0 on "
                "the other.",
            ),
            (
                "is_floored",
                "ρ = {ratio:.4g} lies above c = {dual_clip:.3g}: the floor holds the objective at {objective:.4g} and "
                "the gradient is 0. This token no longer pulls its ratio back.",
            ),
            (
                "is_clipped",
                "ρ = {ratio:.4g} is past {edge:.3g}, the way A asks for: objective {objective:.4g}, gradient 0. "
                "Nothing pulls ρ back either, and other tokens may carry it further.",
            ),
            (
                "is_kept",
                "ρ = {ratio:.4g} is outside the interval, but against what A asks for: objective {objective:.4g}, "
                "gradient {slope:.4g}. All of A stays, so that the way back is open.",
            ),
        ),
        otherwise=(
            "ρ = {ratio:.4g} is inside [{low:.3g}, {high:.3g}]: objective ρA = {objective:.4g}, gradient A = "
            "{slope:.4g}. The clip does nothing."
        ),
    ),
    python=(
        "import torch\n\n"
        "from labsrc.policy_gradient import {surrogate}\n\n"
        "ratio = torch.tensor({ratio:py}, dtype=torch.float64, requires_grad=True)\n"
        "radii = dict(clip_low={clip_low:py}, clip_high={clip_high:py}{more_radii})\n"
        "objective = {surrogate}(ratio.log(), {advantage:py}, **radii)\n"
        "objective.backward()\n"
        "slope = ratio.grad  # on the edge itself there is none: autograd picks a side\n"
        "print(objective.item(), slope.item())"
    ),
)
