"""A lab: a description of what can be turned and what is shown, and one function from state to result.

`labs.tilt()` makes a `View`: shown in a notebook with a kernel it is live widgets calling Python; as text/html it is
a custom element that carries the description as JSON and a figure drawn in advance, which the page's script wakes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from labsrc.labs.controls import Control, Preset, State, Table, clean_state
from labsrc.labs.formats import fields
from labsrc.labs.panels import Panel, Sentence, keys_of, templates_of
from labsrc.labs.view import View

Result = dict[str, Any]
Compute = Callable[[State], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Lab:
    """One lab, declared once for notebook and page.

    name: its key, also that of the page's twin. lead: one line on what is shown. prompt: what to predict before
    touching anything; answer: folded under it. sentence: the result in words. python: a template over state and
    result, the labsrc calls that give the same numbers; {key:py} writes a value as source.
    Raises ValueError where a preset does not fit the controls.
    """

    name: str
    title: str
    lead: str
    compute: Compute
    controls: tuple[Control, ...]
    panels: tuple[Panel, ...]
    sentence: Sentence
    python: str
    prompt: str = ""
    answer: str = ""
    presets: tuple[Preset, ...] = ()

    def __post_init__(self) -> None:
        for preset in self.presets:
            self.state(preset.state)
        # Each setting is a keyword of the call, so that an editor can offer it.
        keyword = inspect.Parameter.KEYWORD_ONLY
        settings = {"compute": None, **self.state()}
        parameters = [inspect.Parameter(key, keyword, default=value) for key, value in settings.items()]
        object.__setattr__(self, "__signature__", inspect.Signature(parameters))

    def __call__(self, *, compute: Compute | None = None, **state: Any) -> View:
        """The lab, ready to be shown, starting from `state`; settings not named start at their defaults.

        compute: a function of your own from a state (a dict, as `.state` of the lab returned here) to a dict with
        the keys that `lab.compute` returns; the notebook then shows what yours computes. Raises ValueError for a
        setting that does not exist or is out of range, or a result that lacks a key.
        """
        return View(self, self.state(state), compute)

    def state(self, changes: Mapping[str, Any] | None = None, base: State | None = None) -> State:
        """A full state: `changes` over `base` (the defaults), checked; ValueError names what is wrong."""
        defaults = {key: value for control in self.controls for key, value in control.defaults().items()}
        return clean_state(self.controls, changes or {}, base or defaults)

    def run(self, compute: Compute, state: State) -> Result:
        """What `compute` makes of `state`, as plain numbers and lists, with every key the lab shows."""
        result = {key: _plain_number(value) for key, value in compute(state).items()}
        if missing := [key for key in self.result_keys() if key not in result]:
            raise ValueError(f"compute must return every key the lab shows; missing {missing}, got {sorted(result)}")
        return result

    def result_keys(self) -> list[str]:
        """The keys of the result that panels, bars, sentence and templates use, sorted."""
        panels = [*self.panels, *(c.bars for c in self.controls if isinstance(c, Table) and c.bars)]
        templates = [self.python, self.sentence.otherwise, *(text for _, text in self.sentence.cases)]
        templates += [text for panel in panels for text in templates_of(panel)]
        named = {key for panel in panels for key in keys_of(panel)} | {key for key, _ in self.sentence.cases}
        named |= {key for text in templates for key in fields(text)}
        return sorted(named - self.state().keys())

    def describe(self) -> dict[str, Any]:
        """The lab as plain data for the page, fields at rest left out; `compute` stays behind."""
        return {key: value for key, value in plain(self).items() if key != "compute"}


def plain(value: Any) -> Any:
    """A tree of dataclasses as dicts and lists; fields that are None, "" or False are left out."""
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {key: plain(item) for key, item in items if not (item is None or item is False or item == "")}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _plain_number(value: Any) -> Any:
    # Tensors and arrays know how to become lists and numbers; a reader's own function may return either.
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain_number(item) for item in value]
    return value
