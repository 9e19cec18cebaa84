"""Elements and percentages as text, the same to the character as the page's markup.js."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from labsrc.labs.formats import fixed

Result = Mapping[str, Any]


def tag(name: str, attributes: Mapping[str, str], *children: str) -> str:
    """An element; attributes in the order given, those that are empty left out."""
    shown = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<{name}{shown}>{''.join(children)}</{name}>"


def clip(share: float) -> float:
    """`share` kept within 0…1."""
    return min(max(share, 0.0), 1.0)


def pct_number(share: float) -> str:
    """0…1 as per cent with two decimals, kept within what a drawing can hold."""
    bounded = min(max(share, -10.0), 10.0)
    text = fixed(abs(bounded) * 100, 2)
    return f"-{text}" if bounded < 0 and text != "0.00" else text


def pct(share: float) -> str:
    """0…1 as a CSS percentage."""
    return f"{pct_number(share)}%"
