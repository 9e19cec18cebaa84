"""A lab with a state: what a notebook cell shows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from labsrc.labs import static
from labsrc.labs.controls import State
from labsrc.labs.draw import sentence
from labsrc.labs.formats import fill, format_value
from labsrc.labs.panels import Numbers
from labsrc.labs.widget import LabWidget

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class View:
    """One lab set to one state. Show it as the last line of a cell; `state` and `result` read where it stands."""

    def __init__(self, lab: Any, state: State, compute: Callable[[State], Mapping[str, Any]] | None) -> None:
        self.lab = lab
        self.is_own = compute is not None
        self._compute = compute or lab.compute
        self._state, self._result = state, lab.run(self._compute, state)
        self._start = copy.deepcopy(state)
        self._widget: LabWidget | None = None

    @property
    def state(self) -> State:
        """The settings as they stand, a copy."""
        return copy.deepcopy(self._state)

    @property
    def start(self) -> State:
        """The settings it started from, to which Reset returns, a copy."""
        return copy.deepcopy(self._start)

    @property
    def result(self) -> dict[str, Any]:
        """What the lab's function made of the state, a copy."""
        return copy.deepcopy(self._result)

    def update(self, **changes: Any) -> None:
        """Change settings from code. Raises ValueError, and changes nothing, where one is wrong."""
        state = self.lab.state(changes, self._state)
        self._state, self._result = state, self.lab.run(self._compute, state)
        if self._widget:
            self._widget.show()

    @property
    def widget(self) -> LabWidget:
        """The ipywidgets form, made when first asked for."""
        if self._widget is None:
            self._widget = LabWidget(self)
        return self._widget

    def python(self) -> str:
        """The labsrc calls that give the same numbers."""
        return fill(self.lab.python, self._state, self._result)

    def words(self) -> str:
        """The result in a sentence."""
        return sentence(self.lab.sentence, self._state, self._result)

    def html(self) -> str:
        """The custom element for a page: description, state and a figure drawn in advance."""
        return static.element(self.lab, self._state, self._result, live=not self.is_own)

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={format_value(value, 'py')}" for key, value in self._state.items())
        tiles = [tile for panel in self.lab.panels if isinstance(panel, Numbers) for tile in panel.tiles]
        numbers = [f"{tile.label} = {format_value(self._result[tile.key], tile.format)}" for tile in tiles]
        return "\n".join([f"{self.lab.title} ({settings})", "; ".join(numbers), self.words()])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.box.model_id}
        return {WIDGET_VIEW: view, "text/html": self.html(), "text/plain": repr(self)}
