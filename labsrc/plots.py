"""Matplotlib drawings from plain arrays on a given Axes; each draws and returns the Axes.

A role keeps its colour and its line style through the whole book, so that no drawing relies on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe–Ito hues, darkened where white paper needs it: told apart by readers with any common colour blindness.
ROLE_COLORS = {
    "reference": "#7a8699",
    "policy": "#1f6fd6",
    "old": "#b35c00",
    "optimum": "#00795c",
    "truth": "#00795c",
    "proxy": "#b3397f",
    "sampled": "#b35c00",
}
ROLE_LINES = {
    "reference": ":",
    "policy": "-",
    "old": "--",
    "optimum": "-.",
    "truth": "-",
    "proxy": "--",
    "sampled": "none",
}
# For curves that have no role: in this order, each with a line style of its own.
SERIES = (
    ("#1f6fd6", "-"),
    ("#b35c00", "--"),
    ("#00795c", "-."),
    ("#b3397f", ":"),
    ("#6b4fc0", (0, (8, 2, 1, 2, 1, 2))),
)
_GRID = {"color": "#e3e6ea", "linewidth": 0.8}


def panels(count: int = 1, *, width: float = 6.6, height: float = 3.2) -> tuple[Figure, Any]:
    """A figure with `count` Axes side by side in the book's style; one Axes is returned bare, several as an array.

    Style is set on the Axes, not through rcParams: the first figure of a session chooses the backend, and a context
    that restores rcParams would undo that choice.
    """
    figure, axes = plt.subplots(1, count, figsize=(width, height), dpi=110, layout="constrained")
    for ax in np.atleast_1d(axes):
        _style(ax)
    return figure, axes


def _style(ax: Axes) -> None:
    """The book's frame and grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(**_GRID)
    ax.set_axisbelow(True)


def dashboard(curves: Mapping[str, Sequence[float]], *, columns: int = 4) -> tuple[Figure, Any]:
    """One small plot a named curve against the step, `columns` in a row. Returns the figure and the Axes, flat.

    A value of None, which a monitor has where nothing was measured, leaves a gap. Raises ValueError for no curves.
    """
    if not curves:
        raise ValueError(f"curves must name at least one; got {curves!r}")
    rows = -(-len(curves) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(7.2, 1.7 * rows), dpi=110, layout="constrained", squeeze=False, sharex=True
    )
    for ax, (name, values) in zip(grid.flat, curves.items(), strict=False):
        ax.plot(range(1, len(values) + 1), np.array(values, dtype=float), color=SERIES[0][0], lw=1.5)
        ax.set_title(name, fontsize=9)
        ax.tick_params(labelsize=7)
        _style(ax)
    for ax in grid.flat[len(curves) :]:
        ax.set_visible(False)
    return figure, grid.flat[: len(curves)]


def policy_bars(ax: Axes, actions: Sequence[str], policies: Mapping[str, Sequence[float]], **labels: str) -> Axes:
    """Grouped bars, one group an action and one bar a role, each with its probability written above it.

    policies: role (a key of `ROLE_COLORS`) to probabilities; labels: role to legend text, the role itself by default.
    """
    positions, width = np.arange(len(actions)), 0.8 / len(policies)
    for index, (role, probabilities) in enumerate(policies.items()):
        offset = (index - (len(policies) - 1) / 2) * width
        name = labels.get(role, role)
        bars = ax.bar(positions + offset, probabilities, 0.92 * width, color=ROLE_COLORS[role], label=name)
        ax.bar_label(bars, fmt="%.3f", fontsize=9, padding=2)
    ax.set_xticks(positions, actions)
    ax.set_ylabel("probability")
    ax.set_ylim(0, 1.1 * max(max(values) for values in policies.values()))
    ax.grid(axis="x", visible=False)
    ax.legend(frameon=False)
    return ax


def lines(ax: Axes, x: Sequence[float], curves: Mapping[str, Sequence[float]], *, roles: Mapping[str, str]) -> Axes:
    """One line a named curve, in the colour and line style of its role."""
    for name, values in curves.items():
        ax.plot(x, values, ROLE_LINES[roles[name]], color=ROLE_COLORS[roles[name]], lw=2, label=name)
    ax.legend(frameon=False)
    return ax


def series(ax: Axes, x: Sequence[float], curves: Mapping[str, Sequence[float]]) -> Axes:
    """One line a named curve without a role, at most five, told apart by hue and by line style."""
    if len(curves) > len(SERIES):
        raise ValueError(f"curves must be at most {len(SERIES)}, or their styles repeat; got {len(curves)}")
    for (name, values), (color, style) in zip(curves.items(), SERIES, strict=False):
        ax.plot(x, values, linestyle=style, color=color, lw=2, label=name)
    ax.legend(frameon=False)
    return ax


def bands(ax: Axes, x: Sequence[float], runs: Mapping[str, Any]) -> Axes:
    """For each named set of runs (R, len(x)) the line of their mean, and a band from the lowest run to the highest.

    Styles and their limit as `series`.
    """
    tables = {name: np.asarray(values) for name, values in runs.items()}
    series(ax, x, {name: table.mean(0) for name, table in tables.items()})
    for table, (color, _) in zip(tables.values(), SERIES, strict=False):
        ax.fill_between(x, table.min(0), table.max(0), color=color, alpha=0.18, linewidth=0)
    return ax


def points(
    ax: Axes, x: Sequence[float], y: Sequence[float], *, role: str, label: str, names: Sequence[str] = ()
) -> Axes:
    """Marked points in the colour of a role, each with an optional name beside it."""
    ax.plot(x, y, "o", color=ROLE_COLORS[role], markersize=6, label=label)
    for text, px, py in zip(names, x, y, strict=False):
        ax.annotate(text, (px, py), xytext=(6, -11), textcoords="offset points", fontsize=9)
    ax.legend(frameon=False)
    return ax


def action_paths(ax: Axes, x: Sequence[float], probabilities: Any, actions: Sequence[str]) -> Axes:
    """Probability of each action along a log-spaced x, each line named at its right end.

    probabilities: (len(x), K).
    """
    styles = ("-", "--", "-.", ":")
    for index, (name, path) in enumerate(zip(actions, np.asarray(probabilities).T, strict=True)):
        (line,) = ax.plot(
            x, path, styles[index % 4], lw=2, color=plt.cm.cividis(index / max(len(actions), 2)), label=name
        )
        ax.annotate(
            name, (x[-1], path[-1]), xytext=(6, 0), textcoords="offset points", va="center", color=line.get_color()
        )
    ax.set_xscale("log")
    ax.set_ylabel("probability")
    ax.set_ylim(0, 1)
    return ax
