"""What a reader can turn: sliders, toggles, choices, editable tables, presets. Each is data; nothing here draws.

A lab's state is a plain dict: a slider's key holds a number, a toggle's a bool, a choice's a string, each column of
a table a list of numbers, a matrix's a list of rows. `clean` checks one value of the state and returns it as plain
Python, or raises ValueError naming the key, what it got and what it wants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import Any

from labsrc.labs.cells import clean_cell, clean_list, clean_number
from labsrc.labs.formats import check_format, letter

State = dict[str, Any]


@dataclass(frozen=True)
class Slider:
    """A number on a line from `minimum` to `maximum`, logarithmic where `log` is set.

    label: a short symbol or word; meaning: the words a screen reader says. step: of the number itself on a linear
    slider; a log slider moves in steps of 0.01 decade and keeps three significant digits. lazy: the lab is slow, so
    a notebook waits until the handle is let go.
    """

    key: str
    label: str
    meaning: str
    value: float
    minimum: float
    maximum: float
    step: float = 0.01
    log: bool = False
    integer: bool = False
    format: str = ".3g"
    unit: str = ""
    lazy: bool = False
    type: str = field(default="slider", init=False)

    def __post_init__(self) -> None:
        check_format(f"format of {self.key}", self.format)
        if self.log and self.minimum <= 0:
            raise ValueError(f"minimum of {self.key} must be greater than 0 on a log slider; got {self.minimum}")
        self.clean(self.key, self.value)

    def defaults(self) -> State:
        """The state's keys that belong to this control, with the values they start at."""
        return {self.key: self.value}

    def clean(self, key: str, value: Any) -> float:
        """`value` as a number in range."""
        return clean_number(key, value, minimum=self.minimum, maximum=self.maximum, integer=self.integer)

    def position(self, value: float) -> float:
        """Where the handle stands for `value`: its logarithm on a log slider."""
        return log10(value) if self.log else value

    def at(self, position: float) -> float:
        """The value at a handle's position, rounded to what the slider shows."""
        if self.log:
            return min(max(float(f"{10**position:.3g}"), self.minimum), self.maximum)
        return int(position) if self.integer else float(f"{position:.10g}")


@dataclass(frozen=True)
class Toggle:
    """A switch."""

    key: str
    label: str
    value: bool = False
    type: str = field(default="toggle", init=False)

    def defaults(self) -> State:
        """As `Slider.defaults`."""
        return {self.key: self.value}

    def clean(self, key: str, value: Any) -> bool:
        """`value` as a bool."""
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be True or False; got {value!r}")
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few named options; the state holds the option's key."""

    key: str
    label: str
    options: Mapping[str, str]
    value: str
    type: str = field(default="choice", init=False)

    def __post_init__(self) -> None:
        self.clean(self.key, self.value)

    def defaults(self) -> State:
        """As `Slider.defaults`."""
        return {self.key: self.value}

    def clean(self, key: str, value: Any) -> str:
        """`value` as one of the options."""
        if value not in self.options:
            raise ValueError(f"{key} must be one of {list(self.options)}; got {value!r}")
        return value


@dataclass(frozen=True)
class Column:
    """A column of a table: the state's `key` holds one number a row. `fresh` is what a new row starts with."""

    key: str
    label: str
    minimum: float = -1000.0
    maximum: float = 1000.0
    fresh: float = 0.0
    integer: bool = False


@dataclass(frozen=True)
class Table:
    """Numbers a reader can edit, one row for each `row` (an action, a completion), within limits.

    values: column key to its initial list. rows: "letter" names the rows a, b, c, "number" 1, 2, 3. bars: series
    that are drawn at the right of each row.
    """

    row: str
    columns: tuple[Column, ...]
    values: Mapping[str, Sequence[float]]
    fewest_rows: int
    most_rows: int
    rows: str = "letter"
    bars: Any = None
    type: str = field(default="table", init=False)

    def __post_init__(self) -> None:
        for key, value in self.values.items():
            self.clean(key, value)

    def defaults(self) -> State:
        """As `Slider.defaults`."""
        return {column.key: list(self.values[column.key]) for column in self.columns}

    def clean(self, key: str, value: Any) -> list[float]:
        """`value` as a list of numbers, one a row."""
        column = next(column for column in self.columns if column.key == key)
        of = f"one number for each {self.row}"
        entries = clean_list(key, value, fewest=self.fewest_rows, most=self.most_rows, of=of)
        return [clean_cell(f"{key}[{index}]", entry, column) for index, entry in enumerate(entries)]

    def row_name(self, index: int) -> str:
        """What row number `index` is called."""
        return letter(index) if self.rows == "letter" else str(index + 1)

    def block(self, state: State) -> list[list[float]]:
        """The table's columns in the state, as `changes` takes them back."""
        return [list(state[column.key]) for column in self.columns]

    def changes(self, block: Sequence[Sequence[float]]) -> State:
        """The part of the state that holds these columns."""
        return {column.key: list(entries) for column, entries in zip(self.columns, block, strict=True)}

    def bounds(self, index: int) -> Column:
        """The limits of the cells of column number `index`."""
        return self.columns[index]

    def column_name(self, index: int) -> str:
        """What stands over column number `index`."""
        return self.columns[index].label


@dataclass(frozen=True)
class Matrix:
    """A block of numbers a reader can edit: the state's `key` holds one list for each `column`, all of one length.

    On the screen each list is a column and its entries go down, since a phone is taller than it is wide.
    """

    key: str
    label: str
    row: str
    column: str
    values: Sequence[Sequence[float]]
    fewest_rows: int
    most_rows: int
    fewest_columns: int
    most_columns: int
    minimum: float = -1000.0
    maximum: float = 1000.0
    fresh: float = 0.0
    integer: bool = False
    type: str = field(default="matrix", init=False)

    def __post_init__(self) -> None:
        self.clean(self.key, self.values)

    def defaults(self) -> State:
        """As `Slider.defaults`."""
        return {self.key: [list(column) for column in self.values]}

    def clean(self, key: str, value: Any) -> list[list[float]]:
        """`value` as a rectangular list of lists of numbers."""
        columns = clean_list(key, value, fewest=self.fewest_columns, most=self.most_columns, of=f"{self.column}s")
        lists = [
            clean_list(f"{key}[{i}]", column, fewest=self.fewest_rows, most=self.most_rows, of=f"{self.row}s")
            for i, column in enumerate(columns)
        ]
        if len({len(column) for column in lists}) > 1:
            raise ValueError(f"{key} must have {self.column}s of one length; got {[len(c) for c in lists]}")
        return [
            [clean_cell(f"{key}[{i}][{j}]", entry, self) for j, entry in enumerate(column)]
            for i, column in enumerate(lists)
        ]

    def row_name(self, index: int) -> str:
        """What row number `index` is called."""
        return str(index + 1)

    def block(self, state: State) -> list[list[float]]:
        """As `Table.block`."""
        return [list(column) for column in state[self.key]]

    def changes(self, block: Sequence[Sequence[float]]) -> State:
        """As `Table.changes`."""
        return {self.key: [list(column) for column in block]}

    def bounds(self, index: int) -> Matrix:
        """As `Table.bounds`."""
        return self

    def column_name(self, index: int) -> str:
        """As `Table.column_name`."""
        return f"{self.column} {index + 1}"


Control = Slider | Toggle | Choice | Table | Matrix


@dataclass(frozen=True)
class Preset:
    """A named setting worth looking at: the parts of the state it changes, and a line on what to see there."""

    label: str
    state: State
    note: str = ""


def clean_state(controls: Sequence[Control], given: Mapping[str, Any], base: State) -> State:
    """`base` with `given` laid over it, every value checked. Columns of one table must have one length."""
    owners = {key: control for control in controls for key in control.defaults()}
    for key in given:
        if key not in owners:
            raise ValueError(f"{key} is not a setting of this lab; its settings are {list(owners)}")
    state = {key: owner.clean(key, given.get(key, base[key])) for key, owner in owners.items()}
    for control in controls:
        if isinstance(control, Table):
            lengths = {column.key: len(state[column.key]) for column in control.columns}
            if len(set(lengths.values())) > 1:
                names = " and ".join(lengths)
                raise ValueError(f"{names} must have one entry for each {control.row}; got lengths {lengths}")
    return state
