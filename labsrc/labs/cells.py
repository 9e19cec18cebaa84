"""Numbers as they enter a lab, from code or from a reader's hand, held to the bounds of their control.

Whatever has `minimum`, `maximum` and `integer` serves as bounds: a slider, a column of a table, a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import Any

from labsrc.labs.formats import format_value


def clean_number(name: str, value: Any, *, minimum: float, maximum: float, integer: bool = False) -> float:
    """`value` as a finite number between the bounds, an int where `integer` is set."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        raise ValueError(f"{name} must be a number; got {value!r}")
    if integer and value != int(value):
        raise ValueError(f"{name} must be a whole number; got {value!r}")
    if not minimum <= value <= maximum:
        bounds = f"from {format_value(minimum, '.6g')} to {format_value(maximum, '.6g')}"
        raise ValueError(f"{name} must be {bounds}; got {value!r}")
    return int(value) if integer else float(value)


def clean_list(name: str, value: Any, *, fewest: int, most: int, of: str) -> list[Any]:
    """`value` as a list of a length between the bounds; arrays and tensors come as their `tolist`."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{name} must be a list of {of}; got {value!r}")
    if not fewest <= len(value) <= most:
        raise ValueError(f"{name} must hold {fewest} to {most} entries, {of}; got {len(value)}")
    return list(value)


def clean_cell(name: str, value: Any, bounds: Any) -> float:
    """One cell of a table, within the bounds of its column."""
    return clean_number(name, value, minimum=bounds.minimum, maximum=bounds.maximum, integer=bounds.integer)


def cell_problem(value: float | None, bounds: Any) -> str:
    """Why a typed number cannot stand in its cell, in words for the reader; empty where it can."""
    if value is not None and bounds.minimum <= value <= bounds.maximum and not (bounds.integer and value % 1):
        return ""
    kind = "whole number" if bounds.integer else "number"
    return f"Type a {kind} from {format_value(bounds.minimum, '.6g')} to {format_value(bounds.maximum, '.6g')}."
