"""A lab as ipywidgets, for a live kernel: the same parts, classes and style sheet as in the page.

Everything drawn is the HTML trait of a widget; nothing goes through an Output widget, so nothing flickers and
nbval's strict comparison holds.
"""

from __future__ import annotations

from functools import partial
from html import escape
from itertools import count
from typing import Any

import ipywidgets as widgets

from labsrc.labs import static
from labsrc.labs.markup import tag
from labsrc.labs.style import style_sheet
from labsrc.labs.widget_controls import ChoiceRow, SliderRow, ToggleRow, classed
from labsrc.labs.widget_sheets import Sheet

# Numbered from 1 in every kernel: a notebook run from top to bottom stores the same ids each time.
_NUMBERS = count(1)

KINDS = {"slider": SliderRow, "toggle": ToggleRow, "choice": ChoiceRow, "table": Sheet, "matrix": Sheet}


class LabWidget:
    """The widgets of one view. `box` is what is displayed; changes go through `change`, drawings through `show`."""

    def __init__(self, view: Any) -> None:
        self.view = view
        lab = view.lab
        self.controls = [KINDS[control.type](control, self) for control in lab.controls]
        self.panels, self.words, self.source, self.note = (widgets.HTML() for _ in range(4))
        self.presets = [_button(p.label, partial(self.press, p.state, p.note)) for p in lab.presets]
        self.reset = _button("Reset", self.press_reset)
        self.as_python = _button("Show as Python", self.press_source)
        self._shows_source = False
        row = [classed(widgets.HBox(self.presets), "lab-presets"), self.note] if self.presets else []
        parts = [
            widgets.HTML(f"<style>{style_sheet()}</style>"),
            widgets.HTML("".join(static.head(lab))),
            *row,
            classed(widgets.VBox([control.box for control in self.controls]), "lab-controls"),
            self.panels,
            self.words,
            classed(widgets.HBox([self.reset, self.as_python]), "lab-foot"),
            self.source,
        ]
        self.box = classed(widgets.VBox(parts, model_id=f"lab-{lab.name}-{next(_NUMBERS)}"), "lab-card")
        self.show()

    def change(self, changes: dict[str, Any]) -> str:
        """Try the changes: the new state is shown, or the old one stays and the reason why is returned."""
        try:
            self.view.update(**changes)
        except ValueError as error:
            return f"{error}."
        return ""

    def press(self, state: dict[str, Any], note: str = "") -> None:
        """Go to a named setting: what it does not name returns to where the lab started."""
        for control in self.controls:
            control.forget()
        self.change({**self.view.start, **state})
        self.note.value = tag("p", {"class": "lab-preset-note", "role": "status"}, escape(note)) if note else ""

    def press_reset(self) -> None:
        """Back to where the lab started."""
        self.press({})

    def press_source(self) -> None:
        """Show or hide the labsrc calls that give the same numbers."""
        self._shows_source = not self._shows_source
        self.as_python.description = "Hide Python" if self._shows_source else "Show as Python"
        self.show()

    def show(self) -> None:
        """Bring every control and drawing to the state of the view."""
        view = self.view
        state, result = view.state, view.result
        for control in self.controls:
            control.show(state, result)
        for button, preset in zip(self.presets, view.lab.presets, strict=True):
            there = view.lab.state(preset.state, view.start) == state
            button.add_class("lab-pressed") if there else button.remove_class("lab-pressed")
        self.panels.value = static.panels(view.lab, state, result)
        self.words.value = tag("p", {"class": "lab-sentence", "aria-live": "polite"}, escape(view.words()))
        code = tag("pre", {"class": "lab-source"}, escape(view.python()))
        self.source.value = code if self._shows_source else ""


def _button(label: str, action: Any) -> widgets.Button:
    button = widgets.Button(description=label)
    button.on_click(lambda _: action())
    return classed(button, "lab-button")
