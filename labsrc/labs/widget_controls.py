"""The controls of a lab as ipywidgets. Each has a `box`, `show(state, result)` and `forget()`.

What a reader types is a Text widget, so that rubbish can be refused with a message: the text stays to be mended,
the lab keeps its last good result.
"""

from __future__ import annotations

from html import escape
from math import log10
from typing import Any

import ipywidgets as widgets

from labsrc.labs.cells import cell_problem
from labsrc.labs.controls import Choice, Slider, State, Toggle
from labsrc.labs.formats import format_value, parse_number
from labsrc.labs.markup import tag


def html(content: str, *names: str) -> widgets.HTML:
    """An HTML widget with style classes."""
    return classed(widgets.HTML(content), *names)


def classed(widget: Any, *names: str) -> Any:
    """`widget` with style classes."""
    for name in names:
        widget.add_class(name)
    return widget


def refusal(name: str, problem: str) -> str:
    """Why what was asked for of the control `name` was refused."""
    words = f"{name}: {problem} The last good value stays in use."
    return tag("p", {"class": "lab-error", "role": "alert"}, escape(words))


class Entry:
    """A text field for one number. `accept(number)` returns why it was refused, or an empty text."""

    def __init__(self, bounds: Any, name: str, accept: Any, message: widgets.HTML) -> None:
        self.bounds, self.name, self.accept, self.message = bounds, name, accept, message
        # The description is the field's name to a screen reader; the style sheet keeps it off the screen.
        text = widgets.Text(continuous_update=False, description=name, tooltip=name)
        self.text = classed(text, "lab-cell")
        self.text.observe(self._typed, "value")
        self._shown = ""

    def show(self, shown: str) -> None:
        """Write a number that holds; a refused text stays until it is mended."""
        self._shown = shown
        if not self.is_bad:
            self.text.value = shown

    @property
    def is_bad(self) -> bool:
        """Whether the text stands refused."""
        return "lab-bad" in self.text._dom_classes

    def forget(self) -> None:
        """Drop a refused text."""
        if self.is_bad:
            self._mark("")
            self.text.value = self._shown

    def _typed(self, change: dict[str, Any]) -> None:
        if change["new"] == self._shown and not self.is_bad:
            return
        value = parse_number(change["new"])
        self._mark("")
        self._mark(cell_problem(value, self.bounds) or self.accept(value))

    def refuse(self, problem: str) -> None:
        """Say why what was asked for by other means than this text was refused; an empty text takes it back."""
        self._mark(problem)

    def _mark(self, problem: str) -> None:
        if problem:
            self.text.add_class("lab-bad")
            self.message.value = refusal(self.name, problem)
        elif self.is_bad:
            self.text.remove_class("lab-bad")
            self.message.value = ""


class SliderRow:
    """A slider with its value beside it, which can be typed too.

    The handle that ipywidgets draws can be given no name from Python. The field beside it has one, and takes the same
    values.
    """

    def __init__(self, slider: Slider, lab: Any) -> None:
        self.slider, self.lab, self._refused = slider, lab, False
        common = {"readout": False, "continuous_update": not slider.lazy, "tooltip": slider.meaning}
        if slider.log:
            ends = {"min": log10(slider.minimum), "max": log10(slider.maximum), "step": 0.01}
            self.handle = widgets.FloatLogSlider(slider.value, base=10, **ends, **common)
        else:
            kind = widgets.IntSlider if slider.integer else widgets.FloatSlider
            ends = {"min": slider.minimum, "max": slider.maximum, "step": slider.step}
            self.handle = kind(slider.value, **ends, **common)
        self.handle.observe(self._moved, "value")
        message = html("", "lab-message")
        self.entry = Entry(slider, slider.meaning, lambda value: lab.change({slider.key: value}), message)
        parts = [html(escape(slider.label), "lab-label"), classed(self.handle, "lab-range"), self.entry.text]
        parts += [html(escape(slider.unit), "lab-unit")] if slider.unit else []
        self.box = widgets.VBox([classed(widgets.HBox(parts), "lab-slider"), message])

    def show(self, state: State, result: Any) -> None:
        """Bring handle and text to the state."""
        value = state[self.slider.key]
        if self._refused:
            self._refused = False
            self.entry.forget()
        self.entry.show(format_value(value, self.slider.format))
        if not self._stands_at(self.handle.value, value):
            self.handle.value = value

    def forget(self) -> None:
        """Drop a refused text."""
        self.entry.forget()

    def _stands_at(self, handle: float, value: float) -> bool:
        # A handle moves in steps, the state need not: within half a step they agree. The browser rounds what it is
        # sent to a step and sends that back, and writing a value under a moving hand would make it jump.
        step = 0.01 if self.slider.log else self.slider.step
        return abs(self.slider.position(handle) - self.slider.position(value)) <= 0.501 * step

    def _moved(self, change: dict[str, Any]) -> None:
        key = self.slider.key
        if not self._stands_at(change["new"], self.lab.view.state[key]):
            self.entry.forget()
            problem = self.lab.change({key: self.slider.at(self.slider.position(change["new"]))})
            if problem:
                self._refused = True
                self.entry.refuse(problem)
                self.handle.value = self.lab.view.state[key]


class SettingRow:
    """What a check box and a row of options share: a handle, and below it why a setting was refused."""

    def __init__(self, key: str, label: str, lab: Any, handle: Any, *parts: Any) -> None:
        self.key, self.label, self.lab, self.handle = key, label, lab, handle
        self.message = html("", "lab-message")
        self.handle.observe(self._moved, "value")
        self.box = widgets.VBox([classed(widgets.HBox([*parts, handle]), "lab-setting"), self.message])

    def show(self, state: State, result: Any) -> None:
        """Bring the handle to the state."""
        self.forget()
        self.handle.value = state[self.key]

    def forget(self) -> None:
        """Drop a message."""
        self.message.value = ""

    def _moved(self, change: dict[str, Any]) -> None:
        held = self.lab.view.state[self.key]
        if change["new"] != held and (problem := self.lab.change({self.key: change["new"]})):
            self.handle.value = held
            self.message.value = refusal(self.label, problem)


class ToggleRow(SettingRow):
    """A check box."""

    def __init__(self, toggle: Toggle, lab: Any) -> None:
        handle = widgets.Checkbox(toggle.value, description=toggle.label, indent=False)
        super().__init__(toggle.key, toggle.label, lab, handle)


class ChoiceRow(SettingRow):
    """A row of options, one pressed."""

    def __init__(self, choice: Choice, lab: Any) -> None:
        options = [(label, key) for key, label in choice.options.items()]
        handle = widgets.ToggleButtons(options=options, value=choice.value, tooltip=choice.label)
        label = html(escape(choice.label), "lab-label")
        super().__init__(choice.key, choice.label, lab, classed(handle, "lab-options"), label)
