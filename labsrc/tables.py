"""Numbers as plain text in aligned columns: what a chapter prints, the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor


def numbers(values: Iterable[Any], spec: str = "+.5f") -> str:
    """The numbers side by side, each in the format `spec`; what rounds to zero has no minus sign.

    values: numbers, or a tensor of shape (K,). Raises ValueError for a spec that is none.

    >>> numbers([0.25, -1e-9], "+.2f")
    '+0.25 +0.00'
    """
    return " ".join(_text(value, spec) for value in values)


def text_table(columns: Mapping[str, Sequence[Any]], formats: str) -> str:
    """The columns as aligned text under their headers, numbers to the right, words to the left.

    columns: header to values, all of one length; a value is a number, a word, or a sequence of numbers, which are set
    side by side. formats: one format a column, separated by blanks, "s" for words. Raises ValueError for columns of
    different lengths, or for more or fewer formats than columns.

    >>> print(text_table({"name": ["a", "bb"], "x": [1.0, -2.5]}, "s +.1f"))
    name     x
    a     +1.0
    bb    -2.5
    """
    specs = formats.split()
    if len(specs) != len(columns):
        raise ValueError(f"formats must hold one a column, {len(columns)}; got {formats!r}")
    lengths = {header: len(values) for header, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must be of one length; got {lengths}")
    aligned = []
    for (header, values), spec in zip(columns.items(), specs, strict=True):
        cells = [header, *(_cell(value, spec) for value in values)]
        width = max(map(len, cells))
        aligned.append([cell.ljust(width) if spec == "s" else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*aligned, strict=True))


def _cell(value: Any, spec: str) -> str:
    several = value.dim() > 0 if isinstance(value, Tensor) else isinstance(value, list | tuple)
    return numbers(value, spec) if several else _text(value, spec)


def _text(value: Any, spec: str) -> str:
    if spec == "s":
        return str(value)
    # The z of the format language: a negative zero, which one machine rounds to and another does not, has no sign.
    sign, rest = (spec[0], spec[1:]) if spec[:1] in "+- " and spec else ("", spec)
    return format(float(value), f"{sign}z{rest}")
