"""The figure drawn in advance: what stands in the page until its script wakes the lab, and where there is none.

Its parts have the places and the heights of the live lab's, so that nothing jumps when that takes over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from labsrc.labs.controls import Choice, Control, Matrix, Slider, State, Table, Toggle
from labsrc.labs.draw import bar_rows, draw, legend, sentence
from labsrc.labs.formats import format_value
from labsrc.labs.markup import pct, tag

BUTTONS = ("Reset", "Copy link", "Copy as Python")
DRAWN_ONCE = "Drawn from a function of the reader's own: run the notebook to move it."
NO_SCRIPT = "The lab moves where JavaScript is on."


def element(lab: Any, state: State, result: Mapping[str, Any], *, live: bool) -> str:
    """The custom element: description and state as JSON, the figure inside. live: whether the page may compute."""
    carried = f" data-lab='{quoted(to_json({'lab': lab.describe(), 'state': state}))}'" if live else ""
    note = tag("p", {"class": "lab-no-script" if live else "lab-hint"}, escape(NO_SCRIPT if live else DRAWN_ONCE))
    body = [
        *head(lab),
        presets(lab) if live else "",
        tag("div", {"class": "lab-controls"}, *(control(c, state, result) for c in lab.controls)),
        panels(lab, state, result),
        tag("p", {"class": "lab-sentence"}, escape(sentence(lab.sentence, state, result))),
        tag("div", {"class": "lab-foot lab-room"}, *map(_button, BUTTONS)) if live else "",
        note,
    ]
    named = f'class="lab-card" role="group" aria-label="Lab: {escape(lab.title)}" data-name="{lab.name}"'
    return f"<align-lab {named}{carried}>{''.join(body)}</align-lab>"


def to_json(value: Any) -> str:
    """Strict JSON: infinities and NaN, which JSON does not have, are refused."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def quoted(text: str) -> str:
    """`text` for an attribute in single quotes, which leaves the many double ones of JSON readable."""
    return escape(text, quote=False).replace("'", "&#x27;")


def head(lab: Any) -> list[str]:
    """Title, lead and prompt."""
    parts = [tag("p", {"class": "lab-title"}, escape(lab.title)), tag("p", {"class": "lab-lead"}, escape(lab.lead))]
    if lab.prompt:
        question = tag("p", {}, tag("strong", {}, "Predict first. "), escape(lab.prompt))
        fold = tag("details", {}, tag("summary", {}, "Compare"), tag("p", {}, escape(lab.answer))) if lab.answer else ""
        parts.append(tag("div", {"class": "lab-prompt"}, question, fold))
    return parts


def panels(lab: Any, state: State, result: Mapping[str, Any]) -> str:
    """All panels, in their grid."""
    return tag("div", {"class": "lab-panels"}, *(draw(panel, state, result) for panel in lab.panels))


def presets(lab: Any) -> str:
    """Room for the presets: only a live lab can set them."""
    if not lab.presets:
        return ""
    return tag("div", {"class": "lab-presets lab-room"}, *(_button(preset.label) for preset in lab.presets))


def _button(label: str) -> str:
    return tag("span", {"class": "lab-button", "aria-hidden": "true"}, escape(label))


def control(one: Control, state: State, result: Mapping[str, Any]) -> str:
    """A control's value as it stands."""
    if isinstance(one, Slider):
        return _slider(one, state[one.key])
    if isinstance(one, Toggle):
        return _setting(one.label, "on" if state[one.key] else "off")
    if isinstance(one, Choice):
        return _setting(one.label, one.options[state[one.key]])
    return _sheet(one, state, result)


def _slider(slider: Slider, value: float) -> str:
    low, high, here = (slider.position(v) for v in (slider.minimum, slider.maximum, value))
    handle = tag("span", {"class": "lab-handle", "style": f"left:{pct((here - low) / (high - low))}"})
    line = tag("span", {"class": "lab-range", "aria-hidden": "true"}, handle)
    number = tag("span", {"class": "lab-cell lab-reading"}, format_value(value, slider.format))
    label = tag("span", {"class": "lab-label"}, escape(slider.label))
    unit = tag("span", {"class": "lab-unit"}, escape(slider.unit)) if slider.unit else ""
    return tag("div", {"class": "lab-control"}, tag("div", {"class": "lab-slider"}, label, line, number, unit))


def _setting(label: str, value: str) -> str:
    return tag("div", {"class": "lab-setting"}, tag("span", {"class": "lab-label"}, escape(label)), escape(value))


def _sheet(sheet: Table | Matrix, state: State, result: Mapping[str, Any]) -> str:
    block, bars = sheet.block(state), getattr(sheet, "bars", None)
    drawn = bar_rows(bars, result) if bars else [""] * len(block[0])
    heads = [sheet.row, *(sheet.column_name(index) for index in range(len(block)))]
    top = tag("div", {"class": "lab-heads"}, *(tag("span", {}, escape(text)) for text in heads), legend_of(sheet))
    rows = [_row(sheet.row_name(i), [column[i] for column in block], drawn[i]) for i in range(len(block[0]))]
    # A table of a fixed number of rows has no buttons to change it.
    can_grow = sheet.fewest_rows < sheet.most_rows
    foot = tag("div", {"class": "lab-row-buttons lab-room"}, _button(f"Add {sheet.row}")) if can_grow else ""
    return tag("div", {"class": f"lab-sheet lab-columns-{len(block)}"}, top, *rows, foot)


def legend_of(sheet: Table | Matrix) -> str:
    """The legend of the bars at the rows of a table, where it has them."""
    bars = getattr(sheet, "bars", None)
    return legend(bars.series) if bars else ""


def _row(name: str, values: list[float], bars: str) -> str:
    cells = [tag("span", {"class": "lab-cell"}, format_value(value, ".6g")) for value in values]
    return tag("div", {"class": "lab-sheet-row"}, tag("span", {"class": "lab-row-name"}, name), *cells, bars)
