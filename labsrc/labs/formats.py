"""Numbers as the labs print them: the same text in the notebook and in the page.

The page's twin is book/_static/labs/format.js, and a test holds the two together. A format is a short word:

    .3f   fixed decimals, 0.750       .3g   significant digits, trailing zeros dropped, 0.75
    d     whole number, 12 800        .1%   per cent, 75.0%
    letter   0 → a, 1 → b             py    as Python source
    text     as it is

A leading + shows the sign of a positive number too; a leading ~ takes what is below 1e-12, the noise of a sum, for
zero. The minus sign is U+2212. A number that a fixed format would
show as zero, or that is too long for it, is written in scientific notation; what has no value is a dash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from math import floor, isfinite, isnan
from typing import Any

MINUS, INFINITY, MISSING, GROUP = "−", "∞", "–", "\u202f"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_FORMAT = re.compile(r"(?P<noisy>~?)(?P<plus>\+?)(?:\.(?P<digits>\d))?(?P<kind>[fgd%]|letter|py|text)")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_FIELD = re.compile(r"\{(?P<key>\w+)(?:\[(?P<index>\d+)\])?(?::(?P<format>[^{}]+))?\}")

# From here on a plain number is longer than a reader can take in.
_TOO_LONG = {"f": 1e6, "g": 1e6, "%": 1e6, "d": 1e15}
_SHORTEST_G = 1e-4
_NOISE = 1e-12


def check_format(name: str, fmt: str) -> str:
    """`fmt`, or ValueError where it is no format."""
    if not _FORMAT.fullmatch(fmt):
        raise ValueError(f"{name} must be a number format such as .3f, .2g, d, .1%, letter; got {fmt!r}")
    return fmt


def format_value(value: Any, fmt: str) -> str:
    """One value of a result as text."""
    parts = _FORMAT.fullmatch(check_format("fmt", fmt))
    kind, digits = parts["kind"], int(parts["digits"] or 0)
    if kind == "py":
        return _python(value)
    if value is None or isinstance(value, str):
        return MISSING if value is None else value
    if isnan(value):
        return MISSING
    if kind == "letter":
        return letter(value)
    if parts["noisy"] and abs(value) < _NOISE:
        value = 0.0
    size = abs(value)
    text = _number(size, kind, digits) if isfinite(value) else INFINITY
    if value < 0 and any(character not in "0.%" for character in text):
        return MINUS + text
    return "+" + text if parts["plus"] and value > 0 else text


def parse_number(text: str) -> float | None:
    """What a reader typed as a number, either minus sign allowed; None where it is none."""
    text = text.strip().replace(MINUS, "-")
    return float(text) if _NUMBER.fullmatch(text) else None


def fill(template: str, *scopes: Mapping[str, Any]) -> str:
    """`template` with {key:format}, {key[0]:format} or {key} looked up in the first scope that has the key."""

    def replace(field: re.Match[str]) -> str:
        value = next(scope[field["key"]] for scope in scopes if field["key"] in scope)
        if field["index"] is not None:
            value = value[int(field["index"])]
        return format_value(value, field["format"] or "text")

    return _FIELD.sub(replace, template)


def fields(template: str) -> list[str]:
    """The keys that `template` asks for; ValueError where one of its formats is none."""
    for field in _FIELD.finditer(template):
        check_format("template", field["format"] or "text")
    return [field["key"] for field in _FIELD.finditer(template)]


def letter(index: float) -> str:
    """0 → a, 1 → b, …: how the labs name actions."""
    return chr(ord("a") + int(index))


def fixed(size: float, decimals: int) -> str:
    """A number ≥ 0 with so many decimals, halves rounded up, as the page's toFixed does."""
    return f"{Decimal(size).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP):f}"


def significant(size: float, digits: int) -> tuple[str, int]:
    """A number > 0 as (its leading digits, the exponent of the first one), halves rounded up."""
    exact = Decimal(size)
    exponent = exact.adjusted()
    mantissa = exact.scaleb(-exponent).quantize(Decimal(1).scaleb(1 - digits), rounding=ROUND_HALF_UP)
    if mantissa >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    return f"{mantissa:f}".replace(".", "")[:digits], exponent


def _number(size: float, kind: str, digits: int) -> str:
    if size and (size >= _TOO_LONG[kind] or _vanishes(size, kind, digits)):
        return _scientific(size, max(digits, 1) if kind == "g" else 2)
    if kind == "f":
        return fixed(size, digits)
    if kind == "%":
        return fixed(100 * size, digits) + "%"
    if kind == "d":
        return re.sub(r"(?<=\d)(?=(\d{3})+$)", GROUP, str(floor(size + 0.5)))
    return _plain(*significant(size, max(digits, 1))) if size else "0"


def _vanishes(size: float, kind: str, digits: int) -> bool:
    smallest = {"f": float(f"5e-{digits + 1}"), "%": float(f"5e-{digits + 3}"), "g": _SHORTEST_G, "d": 0.0}
    return size < smallest[kind]


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        whole, part = "0", "0" * (-exponent - 1) + digits
    else:
        whole, part = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    part = part.rstrip("0")
    return f"{whole}.{part}" if part else whole


def _scientific(size: float, digits: int) -> str:
    shown, exponent = significant(size, digits)
    mantissa = _plain(shown, 0)
    return f"{mantissa}×10{str(exponent).translate(_SUPERSCRIPTS)}"


def _python(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_python(item) for item in value)}]"
    if isinstance(value, float) and isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)
