"""A plot as HTML: an SVG stretched to its frame holds the lines, positioned HTML holds every word and dot.

The page's twin is book/_static/labs/curves.js.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import floor, isfinite
from typing import Any

from labsrc.labs.formats import fill, format_value
from labsrc.labs.markup import Result, clip, pct, pct_number, tag
from labsrc.labs.panels import Curves
from labsrc.labs.scales import Scale, log_ticks, round_domain, round_ticks, tick_format


def curves(plot: Curves, state: Mapping[str, Any], result: Result) -> list[str]:
    """The elements of a plot."""
    x, y = (_scale(plot, axis, result) for axis in ("x", "y"))
    grid = [_line(0, pct_number(at), 100, pct_number(at), "lab-gridline") for at in (1 - y(t) for t in y.ticks)]
    regions = [_region(region, x, result) for region in plot.regions if region.shaded]
    rules = [_rule(rule, x, y, result) for rule in plot.rules]
    paths = [_path(line, x, y, result) for line in plot.lines]
    box = {"viewBox": "0 0 100 100", "preserveAspectRatio": "none", "aria-hidden": "true"}
    picture = tag("svg", box, *regions, *grid, *rules, *paths)
    labels = [
        *(_tick("x", x(t), t, x.format) for t in x.ticks),
        *(_tick("y", 1 - y(t), t, y.format) for t in y.ticks),
        *(_region_label(region, x, state, result) for region in plot.regions if region.label),
        *(_rule_label(rule, x, y, state, result) for rule in plot.rules if rule.label),
        *(_line_label(line, x, y, result) for line in plot.lines if line.label),
        *(part for mark in plot.marks for part in _mark(mark, x, y, state, result)),
    ]
    named = {"class": "lab-plot", "role": "img", "aria-label": fill(plot.alt, result, state)}
    frame = tag("div", {"class": "lab-frame", "style": f"height:{plot.height}px"}, picture, *labels)
    y_name, x_name = (
        tag("div", {"class": f"lab-axis-{k}"}, escape(a.label)) for k, a in (("y", plot.y), ("x", plot.x))
    )
    caption = tag("p", {"class": "lab-caption"}, escape(fill(plot.caption, result, state))) if plot.caption else ""
    return [tag("div", named, y_name, frame, x_name), caption]


def _scale(plot: Curves, name: str, result: Result) -> Scale:
    axis = getattr(plot, name)
    given = result[axis.domain] if isinstance(axis.domain, str) else axis.domain
    low, high = given or round_domain(
        [value for line in plot.lines if line.fit for value in result[getattr(line, name)]], around_zero=False
    )
    ticks = log_ticks(low, high) if axis.log else round_ticks(low, high)
    return Scale(low, high, ticks, axis.format or tick_format(low, high, log=axis.log), axis.log)


def _path(line: Any, x: Scale, y: Scale, result: Result) -> str:
    steps, drawing = [], False
    for across, up in zip(result[line.x], result[line.y], strict=True):
        if not (isfinite(across) and isfinite(up)):
            drawing = False
            continue
        steps.append(f"{'L' if drawing else 'M'}{pct_number(x(across))} {pct_number(1 - y(up))}")
        drawing = True
    shape = {"class": f"lab-line lab-stroke-{line.role}", "d": "".join(steps), "stroke-dasharray": line.dash}
    return tag("path", shape)


def _line(x1: Any, y1: Any, x2: Any, y2: Any, name: str) -> str:
    return tag("line", {"class": name, "x1": str(x1), "y1": str(y1), "x2": str(x2), "y2": str(y2)})


def _region(region: Any, x: Scale, result: Result) -> str:
    start, end = (clip(x(_bound(edge, result))) for edge in (region.start, region.end))
    place = {"x": pct_number(start), "y": "0", "width": pct_number(max(end - start, 0.0)), "height": "100"}
    return tag("rect", {"class": "lab-region", **place})


def _region_label(region: Any, x: Scale, state: Mapping[str, Any], result: Result) -> str:
    start, end = (clip(x(_bound(edge, result))) for edge in (region.start, region.end))
    style = f"left:{pct(start)};width:{pct(max(end - start, 0.0))}"
    return tag("span", {"class": "lab-region-label", "style": style}, escape(fill(region.label, result, state)))


def _rule(rule: Any, x: Scale, y: Scale, result: Result) -> str:
    value = _bound(rule.at, result)
    if rule.axis == "x":
        at = pct_number(x(value))
        return _line(at, 0, at, 100, "lab-rule")
    at = pct_number(1 - y(value))
    return _line(0, at, 100, at, "lab-rule")


def _rule_label(rule: Any, x: Scale, y: Scale, state: Mapping[str, Any], result: Result) -> str:
    value = _bound(rule.at, result)
    style = f"left:{pct(x(value))}" if rule.axis == "x" else f"top:{pct(1 - y(value))}"
    name = f"lab-rule-label lab-rule-{rule.axis}"
    return tag("span", {"class": name, "style": style}, escape(fill(rule.label, result, state)))


def _line_label(line: Any, x: Scale, y: Scale, result: Result) -> str:
    index = floor(line.at * (len(result[line.x]) - 1) + 0.5)
    place = f"left:{pct(clip(x(result[line.x][index])))};top:{pct(clip(1 - y(result[line.y][index])))}"
    name = f"lab-line-label lab-{line.side} lab-ink-{line.role}"
    return tag("span", {"class": name, "style": place}, escape(line.label))


def _mark(mark: Any, x: Scale, y: Scale, state: Mapping[str, Any], result: Result) -> list[str]:
    right, up = _bound(mark.x, result), _bound(mark.y, result)
    if not (isfinite(right) and isfinite(up)):
        return []
    across, down = clip(x(right)), clip(1 - y(up))
    place = f"left:{pct(across)};top:{pct(down)}"
    dot = tag("span", {"class": f"lab-dot lab-role-{mark.role}", "style": place})
    # The label keeps inside the frame: it changes sides where the dot nears an edge.
    aside = "lab-before" if across > 0.6 else "lab-after"
    upright = "lab-over" if mark.over and down > 0.15 else "lab-under"
    name = f"lab-mark-label {aside} {upright} lab-ink-{mark.role}"
    label = tag("span", {"class": name, "style": place}, escape(fill(mark.label, result, state)))
    return [dot, label] if mark.label else [dot]


def _tick(axis: str, at: float, value: float, fmt: str) -> str:
    style = f"left:{pct(at)}" if axis == "x" else f"top:{pct(at)}"
    return tag("span", {"class": f"lab-tick lab-tick-{axis}", "style": style}, format_value(value, fmt))


def _bound(bound: float | str, result: Result) -> float:
    return result[bound] if isinstance(bound, str) else bound
