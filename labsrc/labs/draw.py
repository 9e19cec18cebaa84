"""Panels as HTML: the static figure of a page, and the picture in the notebook.

The page draws the same in draw.js, and a test demands the same markup to the character. All positions are per
cent of the container and all text is HTML, so that a drawing fits any width without being measured or scaled.
Colours come from the style sheet, by role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from labsrc.labs.curves import curves
from labsrc.labs.formats import fill, format_value, letter
from labsrc.labs.markup import Result, pct, tag
from labsrc.labs.panels import Bars, Grid, Numbers, Panel, Sentence, Stacked
from labsrc.labs.scales import round_domain, share


def draw(panel: Panel, state: Mapping[str, Any], result: Result) -> str:
    """One panel as HTML; nothing for bars without a row."""
    if isinstance(panel, Bars) and not all(result[series.key] for series in panel.series):
        return ""  # bars of rows that are not there, as of a prompt that the reader has not added
    kinds = {"bars": _bars, "numbers": _numbers, "curves": curves, "stacked": _stacked, "grid": _grid}
    title = tag("p", {"class": "lab-panel-title"}, escape(panel.title)) if getattr(panel, "title", "") else ""
    name = f"lab-panel lab-{panel.type}" + (" lab-wide" if panel.wide else "")
    return tag("div", {"class": name}, title, *kinds[panel.type](panel, state, result))


def sentence(words: Sentence, state: Mapping[str, Any], result: Result) -> str:
    """The result in words, as plain text."""
    chosen = next((template for key, template in words.cases if result[key]), words.otherwise)
    return fill(chosen, result, state)


def row_names(rows: Sequence[str] | str, count: int) -> list[str]:
    """The names of `count` rows: listed, or a, b, c, or 1, 2, 3."""
    if isinstance(rows, str):
        return [letter(index) if rows == "letter" else str(index + 1) for index in range(count)]
    return list(rows[:count])


# ---------------------------------------------------------------- bars


def legend(series: Sequence[Any]) -> str:
    """A swatch and a name for each series."""
    items = [tag("span", {"class": "lab-key"}, _swatch(one.role), tag("span", {}, escape(one.label))) for one in series]
    return tag("span", {"class": "lab-legend"}, *items)


def bar_rows(bars: Bars, result: Result) -> list[str]:
    """The bars of each row, all on one scale."""
    columns = [result[series.key] for series in bars.series]
    given = result[bars.domain] if isinstance(bars.domain, str) else bars.domain
    low, high = given or round_domain([value for column in columns for value in column])
    return [
        _bar_row(bars, [column[index] for column in columns], low, high)
        for index in range(min(len(column) for column in columns))
    ]


def _bar_row(bars: Bars, values: Sequence[float], low: float, high: float) -> str:
    texts = [format_value(value, series.format) for value, series in zip(values, bars.series, strict=True)]
    words = ", ".join(f"{series.label} {text}" for series, text in zip(bars.series, texts, strict=True))
    rows = []
    for value, series, text in zip(values, bars.series, texts, strict=True):
        start, end = sorted(share(edge, low, high) for edge in (0.0, value))
        zero = tag("span", {"class": "lab-zero", "style": f"left:{pct(share(0.0, low, high))}"}) if low < 0 else ""
        track = tag("span", {"class": "lab-track"}, _fill(series.role, start, end), zero)
        number = tag("span", {"class": "lab-value"}, text)
        rows.append(tag("span", {"class": "lab-bar"}, track, number))
    return tag("div", {"class": "lab-bar-group", "role": "img", "aria-label": words}, *rows)


def _bars(bars: Bars, state: Mapping[str, Any], result: Result) -> list[str]:
    groups = bar_rows(bars, result)
    names = row_names(bars.rows, len(groups))
    rows = [_named_row(name, group) for name, group in zip(names, groups, strict=True)]
    return [legend(bars.series), *rows]


def _named_row(name: str, content: str) -> str:
    return tag("div", {"class": "lab-row"}, tag("span", {"class": "lab-row-name"}, escape(name)), content)


def _fill(role: str, start: float, end: float) -> str:
    style = f"left:{pct(start)};width:{pct(end - start)}"
    return tag("span", {"class": f"lab-fill lab-role-{role}", "style": style})


def _swatch(role: str) -> str:
    return tag("span", {"class": f"lab-swatch lab-role-{role}"})


def _stacked(stacked: Stacked, state: Mapping[str, Any], result: Result) -> list[str]:
    totals = [sum(result[part.key][index] for part in stacked.parts) for index in range(len(stacked.rows))]
    _, high = stacked.domain or round_domain(totals)
    rows = []
    for index, name in enumerate(stacked.rows):
        start, pieces, words = 0.0, [], []
        for part in stacked.parts:
            size = result[part.key][index]
            pieces.append(_fill(part.role, share(start, 0.0, high), share(start + size, 0.0, high)))
            words.append(f"{part.label} {format_value(size, part.format)}")
            start += size
        total = f"{format_value(totals[index], stacked.format)} {stacked.unit}".strip()
        track = tag("span", {"class": "lab-track"}, *pieces)
        bar = tag("span", {"class": "lab-bar"}, track, tag("span", {"class": "lab-value"}, escape(total)))
        group = {"class": "lab-bar-group", "role": "img", "aria-label": f"{', '.join(words)}; total {total}"}
        rows.append(_named_row(name, tag("div", group, bar)))
    return [legend(stacked.parts), *rows]


# ---------------------------------------------------------------- numbers


def _numbers(numbers: Numbers, state: Mapping[str, Any], result: Result) -> list[str]:
    return [tag("dl", {"class": "lab-tiles"}, *(_tile(tile, state, result) for tile in numbers.tiles))]


def _tile(tile: Any, state: Mapping[str, Any], result: Result) -> str:
    note = tag("dd", {"class": "lab-note"}, escape(fill(tile.note, result, state))) if tile.note else ""
    label = tag("dt", {}, escape(tile.label))
    number = tag("dd", {"class": "lab-number"}, format_value(result[tile.key], tile.format))
    return tag("div", {"class": "lab-tile"}, label, number, note)


def _grid(grid: Grid, state: Mapping[str, Any], result: Result) -> list[str]:
    count = len(result[grid.columns[0].key])
    heads = [tag("th", {"scope": "col"}, escape(label)) for label in (grid.corner, *(c.label for c in grid.columns))]
    body = []
    for index, name in enumerate(row_names(grid.rows, count)):
        cells = [tag("td", {}, escape(format_value(result[c.key][index], c.format))) for c in grid.columns]
        body.append(tag("tr", {}, tag("th", {"scope": "row"}, escape(name)), *cells))
    table = tag("table", {}, tag("thead", {}, tag("tr", {}, *heads)), tag("tbody", {}, *body))
    return [tag("div", {"class": "lab-scroll"}, table)]
