"""A lab with every kind of control and panel, its page twin, and states to try any lab with."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from labsrc.labs.controls import Choice, Column, Matrix, Preset, Slider, Table, Toggle
from labsrc.labs.lab import Lab
from labsrc.labs.panels import (
    Axis,
    Bars,
    Curves,
    Grid,
    Line,
    Mark,
    Numbers,
    Region,
    Rule,
    Sentence,
    Series,
    Stacked,
    Tile,
)

SCRIPTS = sorted((Path(__file__).resolve().parent.parent / "book" / "_static" / "labs").glob("*.js"))


def compute(state: dict[str, Any]) -> dict[str, Any]:
    """Nothing but arithmetic that both languages do to the last digit, and values of every awkward kind."""
    if state["level"] == 7 and state["on"]:
        raise ValueError("level must not be 7 while on")
    sums = [sum(column) for column in state["scores"]]
    signed = [(count - 4) * state["size"] for count in state["counts"]]
    return {
        "signed": signed,
        "halves": [value / 2 for value in signed],
        "sums": sums,
        "longest": [math.inf, *sums],
        "kinds": [state["kind"], *("<b> & 'q'" for _ in sums)],
        "total": sum(sums) + state["level"],
        "rate_squared": state["rate"] * state["rate"],
        "nothing": math.nan,
        "x": [0.01, 0.1, 1, 10, 100],
        "y": [state["size"], -state["size"], math.nan, math.inf, sums[0]],
        "middle": 2.0,
        "memory": [state["counts"][0] * 1.5, state["counts"][0] * 0.25],
        "spare": [state["level"], 1.0],
        "on_now": state["on"],
    }


TWIN = """
alignLabs.twins.demo = function (state) {
  if (state.level === 7 && state.on) throw new Error("level must not be 7 while on");
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const sums = state.scores.map(sum), signed = state.counts.map((count) => (count - 4) * state.size);
  return {
    signed, halves: signed.map((value) => value / 2), sums, longest: [Infinity, ...sums],
    kinds: [state.kind, ...sums.map(() => "<b> & 'q'")], total: sum(sums) + state.level,
    rate_squared: state.rate * state.rate, nothing: NaN, x: [0.01, 0.1, 1, 10, 100],
    y: [state.size, -state.size, NaN, Infinity, sums[0]], middle: 2,
    memory: [state.counts[0] * 1.5, state.counts[0] * 0.25], spare: [state.level, 1], on_now: state.on,
  };
};
"""

demo = Lab(
    name="demo",
    title="Everything at <once>",
    lead='All controls & all panels, with "quotes".',
    prompt="What will it be?",
    answer="That.",
    compute=compute,
    controls=(
        Slider("level", "level", "the level", 3, 0, 10, step=1, integer=True, format="d", unit="steps"),
        Slider("rate", "rate", "the rate", 0.1, 1e-4, 10.0, log=True),
        Slider("size", "size", "the size", 0.5, -1.0, 1.0, step=0.05, format=".2f", lazy=True),
        Toggle("on", "switched on"),
        Choice("kind", "kind", {"mean": "mean", "max": "largest"}, "mean"),
        Table(
            row="item",
            columns=(Column("counts", "count", minimum=0, maximum=12, fresh=1, integer=True),),
            values={"counts": (3, 5)},
            fewest_rows=2,
            most_rows=5,
            rows="number",
            bars=Bars(series=(Series("signed", "signed", "advantage", "+.2f"),)),
        ),
        Matrix(
            "scores",
            "scores",
            row="answer",
            column="prompt",
            values=((1.0, 0.0), (0.5, 0.25)),
            fewest_rows=2,
            most_rows=4,
            fewest_columns=1,
            most_columns=3,
        ),
    ),
    presets=(Preset("Off the mark", {"level": 9, "kind": "max"}, "Nine."), Preset("Start", {})),
    panels=(
        Bars(
            series=(Series("signed", "whole", "policy"), Series("halves", "half", "old", ".1%")),
            rows=("one", "two", "three", "four", "five"),
            title="Signed",
        ),
        Numbers((Tile("total", "total", "d", "rate² {rate_squared:.3g}"), Tile("nothing", "no value", ".2f"))),
        Stacked(
            (Series("memory", "weights", "part1", ".2f"), Series("spare", "spare", "part2", ".2f")),
            rows=("with", "without"),
            unit="GB",
            title="Memory",
        ),
        Grid(
            (Series("longest", "longest", "policy", ".3f"), Series("kinds", "kind", "policy", "text")), corner="prompt"
        ),
        Curves(
            x=Axis("x", (0.01, 100.0), log=True),
            y=Axis("y"),
            lines=(
                Line("x", "y", "policy", "y", at=0.0, side="right"),
                Line("x", "x", "old", "x", dash="3 3", fit=False),
            ),
            marks=(Mark("middle", "total", "optimum", "total {total:.1f}", over=True), Mark(1.0, "nothing", "old")),
            rules=(Rule("x", 1.0, "one"), Rule("y", "middle", "two {level:d}"), Rule("x", "middle")),
            regions=(
                Region(0.01, 0.1, "low"),
                Region("middle", 100.0, "above {middle:.0f}", shaded=False),
                Region(0.0, 0.02),
            ),
            alt="Total {total:.2f}, the first sum {sums[0]:.2f}.",
            caption="Level {level:d}.",
            title="Curves",
        ),
    ),
    sentence=Sentence("Off, at {rate:.3g}.", (("on_now", "On, first row {signed[0]:+.2f}."),)),
    python="total = {total:py}; kind = {kind:py}; scores = {scores:py}; on = {on:py}",
)


# ---------------------------------------------------------------- states


def random_states(lab: Lab, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """`count` states from all over the lab's controls: tame and wild numbers, every number of rows."""
    rng = np.random.default_rng([seed, *lab.name.encode()])
    return [{k: v for control in lab.controls for k, v in random_setting(control, rng).items()} for _ in range(count)]


def random_setting(control: Any, rng: np.random.Generator) -> dict[str, Any]:
    """A setting of one control, as the part of the state that it owns."""
    if isinstance(control, Slider):
        low, high = control.position(control.minimum), control.position(control.maximum)
        value = control.at(low + (high - low) * rng.random())
        return {control.key: min(max(value, control.minimum), control.maximum)}
    if isinstance(control, Toggle):
        return {control.key: bool(rng.integers(2))}
    if isinstance(control, Choice):
        return {control.key: str(rng.choice(list(control.options)))}
    rows = int(rng.integers(control.fewest_rows, control.most_rows + 1))
    if isinstance(control, Matrix):
        columns = int(rng.integers(control.fewest_columns, control.most_columns + 1))
        return {control.key: [random_column(control, rows, rng) for _ in range(columns)]}
    return {column.key: random_column(column, rows, rng) for column in control.columns}


def random_column(bounds: Any, rows: int, rng: np.random.Generator) -> list[float]:
    """Cells of a column: ordinary numbers mostly, now and then zeros, equal ones, tiny and extreme ones."""
    kind = rng.choice(["plain", "plain", "plain", "zeros", "equal", "tiny", "extreme"])
    values = rng.normal(0.0, 2.0, rows)
    if kind == "zeros":
        values = values * rng.integers(0, 2, rows)
    if kind == "equal":
        values = np.full(rows, values[0])
    if kind == "tiny":
        values = values * 10.0 ** rng.integers(-12, 0, rows)
    if kind == "extreme":
        values = rng.choice([bounds.minimum, bounds.maximum, 0.5 * bounds.maximum], rows)
    values = np.abs(values) if bounds.minimum >= 0 else values
    values = np.round(values) if bounds.integer else values
    return [int(v) if bounds.integer else float(v) for v in np.clip(values, bounds.minimum, bounds.maximum)]


def edge_states(lab: Lab) -> list[dict[str, Any]]:
    """The start, every preset, and each slider, switch and option at its ends, alone and all together."""
    start = lab.state()
    ends = {}
    for control in lab.controls:
        if isinstance(control, Slider):
            ends[control.key] = [control.clean(control.key, end) for end in (control.minimum, control.maximum)]
        if isinstance(control, Toggle):
            ends[control.key] = [False, True]
        if isinstance(control, Choice):
            ends[control.key] = list(control.options)
    alone = [{**start, key: end} for key, values in ends.items() for end in values]
    together = [{**start, **dict(zip(ends, c, strict=True))} for c in itertools.product(*ends.values())]
    presets = [lab.state(preset.state) for preset in lab.presets]
    crossed = [{**preset, key: end} for preset in presets for key, values in ends.items() for end in values]
    return [start, *presets, *alone, *together[:256], *crossed]
