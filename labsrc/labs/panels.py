"""What a lab shows: bars, curves, tiles, tables, a sentence. Each is data that names keys of the result.

`draw.py` and the page's draw.js turn them into the same markup. A `role` (reference, policy, …) fixes the colour and
the line style through the whole book. `wide=False` lets a panel share a row with its neighbour where there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Bound = float | str  # a number, or the key of the result that holds it
Domain = tuple[float, float] | str | None  # the ends of a scale, the key of the result that holds them, or fitted


@dataclass(frozen=True)
class Series:
    """One bar in each row: `key` holds a list with one number a row."""

    key: str
    label: str
    role: str
    format: str = ".3f"


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, grouped by row, with their values written at the right; negative values go left of zero.

    domain: the ends of the scale, or None for round numbers around the data. rows: the rows' names, or "letter" or
    "number". A table of controls may carry the bars of its own rows; as a panel they stand alone.
    """

    series: tuple[Series, ...]
    domain: Domain = None
    rows: Sequence[str] | str = "letter"
    title: str = ""
    wide: bool = True
    type: str = field(default="bars", init=False)


@dataclass(frozen=True)
class Tile:
    """One large number; `note` is a small line under it, a template over the result."""

    key: str
    label: str
    format: str = ".3f"
    note: str = ""


@dataclass(frozen=True)
class Numbers:
    """A row of tiles."""

    tiles: tuple[Tile, ...]
    wide: bool = True
    type: str = field(default="numbers", init=False)


@dataclass(frozen=True)
class Axis:
    """One axis of a plot.

    domain: its ends, or None for round numbers around the lines that `fit`; a log axis needs them. format: of its
    ticks, by default as many decimals as their distance has.
    """

    label: str
    domain: Domain = None
    log: bool = False
    format: str = ""

    def __post_init__(self) -> None:
        if self.log and (self.domain is None or isinstance(self.domain, str) or self.domain[0] <= 0):
            raise ValueError(f"domain of the log axis {self.label!r} must have ends above 0; got {self.domain}")


@dataclass(frozen=True)
class Line:
    """A curve through the points of two lists. label stands beside the point at the fraction `at` of the way.

    side: above, below, left or right of that point. dash: none, or how the line is broken. fit: whether the axes
    stretch to hold it.
    """

    x: str
    y: str
    role: str
    label: str = ""
    at: float = 1.0
    side: str = "above"
    dash: str = ""
    fit: bool = True


@dataclass(frozen=True)
class Mark:
    """A dot at one point of the result, with a label above or under it (a template over state and result)."""

    x: Bound
    y: Bound
    role: str
    label: str = ""
    over: bool = False


@dataclass(frozen=True)
class Rule:
    """A thin straight line across the plot at one value of x or of y."""

    axis: str
    at: Bound
    label: str = ""


@dataclass(frozen=True)
class Region:
    """A band between two values of x, shaded or not, named at its top (a template over state and result)."""

    start: Bound
    end: Bound
    label: str = ""
    shaded: bool = True


@dataclass(frozen=True)
class Curves:
    """Lines over a plane, with marked points, rules and named regions.

    alt: the plot in words; caption: a line under it; both are templates.
    """

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    alt: str
    marks: tuple[Mark, ...] = ()
    rules: tuple[Rule, ...] = ()
    regions: tuple[Region, ...] = ()
    title: str = ""
    caption: str = ""
    height: int = 200
    wide: bool = True
    type: str = field(default="curves", init=False)


@dataclass(frozen=True)
class Stacked:
    """Bars made of parts laid end to end: each part's `key` holds one number ≥ 0 a row; the total stands at the end."""

    parts: tuple[Series, ...]
    rows: Sequence[str]
    format: str = ".1f"
    unit: str = ""
    domain: tuple[float, float] | None = None
    title: str = ""
    wide: bool = True
    type: str = field(default="stacked", init=False)


@dataclass(frozen=True)
class Grid:
    """A table of results: each column's `key` holds a list with one number or text a row."""

    columns: tuple[Series, ...]
    rows: Sequence[str] | str = "letter"
    corner: str = ""
    title: str = ""
    wide: bool = True
    type: str = field(default="grid", init=False)


Panel = Bars | Numbers | Curves | Stacked | Grid


@dataclass(frozen=True)
class Sentence:
    """The result in words: the first case whose key is true in the result, else `otherwise`; templates."""

    otherwise: str
    cases: tuple[tuple[str, str], ...] = ()


def keys_of(panel: Panel) -> list[str]:
    """The keys of the result that a panel needs, templates left out."""
    if isinstance(panel, Bars):
        return [series.key for series in panel.series] + ([panel.domain] if isinstance(panel.domain, str) else [])
    if isinstance(panel, Numbers):
        return [tile.key for tile in panel.tiles]
    if isinstance(panel, Stacked):
        return [part.key for part in panel.parts]
    if isinstance(panel, Grid):
        return [column.key for column in panel.columns]
    points = [key for line in panel.lines for key in (line.x, line.y)]
    bounds = [at for mark in panel.marks for at in (mark.x, mark.y)] + [rule.at for rule in panel.rules]
    bounds += [end for region in panel.regions for end in (region.start, region.end)]
    bounds += [panel.x.domain, panel.y.domain]
    return points + [bound for bound in bounds if isinstance(bound, str)]


def templates_of(panel: Panel) -> list[str]:
    """The templates a panel fills in from the result."""
    if isinstance(panel, Numbers):
        return [tile.note for tile in panel.tiles]
    if isinstance(panel, Curves):
        labels = [one.label for one in (*panel.marks, *panel.rules, *panel.regions)]
        return [panel.alt, panel.caption, *labels]
    return []
