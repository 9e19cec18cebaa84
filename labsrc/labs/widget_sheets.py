"""An editable table of a lab as ipywidgets: one row of text fields for each row of the state."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from labsrc.labs.controls import Matrix, State, Table
from labsrc.labs.draw import bar_rows
from labsrc.labs.formats import MINUS, format_value
from labsrc.labs.static import legend_of
from labsrc.labs.widget_controls import Entry, classed, html


class Sheet:
    """A table or a matrix: heads, rows with their bars, a place for messages, buttons for more and fewer rows."""

    def __init__(self, sheet: Table | Matrix, lab: Any) -> None:
        self.sheet, self.lab = sheet, lab
        self.message = html("", "lab-message")
        self.rows = widgets.VBox()
        self.heads = classed(widgets.HBox(), "lab-heads")
        self.entries: list[list[Entry]] = []  # by column, then row
        self.bars: list[widgets.HTML] = []
        self.buttons: list[widgets.Button] = []
        # A table of a fixed number of rows has no buttons to change it.
        if sheet.fewest_rows < sheet.most_rows:
            self.buttons += [
                self._button(f"Add {sheet.row}", self._grow),
                self._button(f"Remove {sheet.row}", self._shrink),
            ]
        if isinstance(sheet, Matrix):
            self.buttons += [
                self._button(f"Add {sheet.column}", self._widen),
                self._button(f"Remove {sheet.column}", self._narrow),
            ]
        foot = [classed(widgets.HBox(self.buttons), "lab-row-buttons")] if self.buttons else []
        self.box = classed(widgets.VBox([self.heads, self.rows, self.message, *foot]), "lab-sheet")

    def show(self, state: State, result: Any) -> None:
        """Bring every cell and bar to the state; rows are made anew where their number changed."""
        block = self.sheet.block(state)
        if [len(column) for column in self.entries] != [len(column) for column in block]:
            self._build(len(block), len(block[0]))
        for entries, numbers in zip(self.entries, block, strict=True):
            for entry, number in zip(entries, numbers, strict=True):
                entry.show(format_value(number, "py").replace("-", MINUS))
        drawn = bar_rows(self.sheet.bars, result) if getattr(self.sheet, "bars", None) else []
        for widget, markup in zip(self.bars, drawn, strict=True):
            widget.value = markup

    def forget(self) -> None:
        """Drop every refused text."""
        for column in self.entries:
            for entry in column:
                entry.forget()

    def _build(self, columns: int, rows: int) -> None:
        sheet = self.sheet
        names = [sheet.row, *(sheet.column_name(index) for index in range(columns))]
        key = legend_of(sheet)
        self.heads.children = [html(escape(name)) for name in names] + ([html(key)] if key else [])
        self.entries = [[self._entry(column, row) for row in range(rows)] for column in range(columns)]
        self.bars = [html("", "lab-bars-cell") for _ in range(rows if key else 0)]
        self.rows.children = [self._row(row) for row in range(rows)]
        self.message.value = ""
        for name in [name for name in self.box._dom_classes if name.startswith("lab-columns-")]:
            self.box.remove_class(name)
        self.box.add_class(f"lab-columns-{columns}")
        can_change = sheet.fewest_rows < sheet.most_rows
        limits = [rows < sheet.most_rows, rows > sheet.fewest_rows] if can_change else []
        if isinstance(sheet, Matrix):
            limits += [columns < sheet.most_columns, columns > sheet.fewest_columns]
        for button, allowed in zip(self.buttons, limits, strict=True):
            button.disabled = not allowed

    def _row(self, row: int) -> widgets.HBox:
        cells = [column[row].text for column in self.entries]
        parts = [html(self.sheet.row_name(row), "lab-row-name"), *cells, *self.bars[row : row + 1]]
        return classed(widgets.HBox(parts), "lab-sheet-row")

    def _entry(self, column: int, row: int) -> Entry:
        sheet = self.sheet
        name = f"{sheet.column_name(column)}, {sheet.row} {sheet.row_name(row)}"
        return Entry(sheet.bounds(column), name, partial(self._accept, column, row), self.message)

    def _accept(self, column: int, row: int, value: float) -> str:
        block = self.sheet.block(self.lab.view.state)
        block[column][row] = value
        return self.lab.change(self.sheet.changes(block))

    def _grow(self, block: list[list[float]]) -> list[list[float]]:
        return [[*column, self.sheet.bounds(index).fresh] for index, column in enumerate(block)]

    def _shrink(self, block: list[list[float]]) -> list[list[float]]:
        return [column[:-1] for column in block]

    def _widen(self, block: list[list[float]]) -> list[list[float]]:
        return [*block, [self.sheet.fresh] * len(block[0])]

    def _narrow(self, block: list[list[float]]) -> list[list[float]]:
        return block[:-1]

    def _button(self, label: str, reshape: Any) -> widgets.Button:
        button = classed(widgets.Button(description=label), "lab-button")
        button.on_click(lambda _: self._reshape(reshape))
        return button

    def _reshape(self, reshape: Any) -> None:
        problem = self.lab.change(self.sheet.changes(reshape(self.sheet.block(self.lab.view.state))))
        self.message.value = f'<p class="lab-error" role="alert">{escape(problem)}</p>' if problem else ""
