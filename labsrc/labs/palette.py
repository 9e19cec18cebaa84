"""The colour of each role, on light and on dark ground, one table for every lab.

Roles that the book's printed figures have too take their colour from `labsrc.plots`. Hues are told apart by readers
with any common colour blindness; roles also differ in place, label or line style, never in colour alone.
"""

from __future__ import annotations

from labsrc.plots import ROLE_COLORS

LIGHT = {
    **ROLE_COLORS,
    "advantage": "#6b4fc0",
    "part1": "#1f6fd6",
    "part2": "#b35c00",
    "part3": "#00795c",
    "part4": "#b3397f",
    "part5": "#6b4fc0",
    "part6": "#7a8699",
}
DARK = {
    "reference": "#98a4b5",
    "policy": "#6aabff",
    "old": "#f0a04b",
    "optimum": "#45c79b",
    "truth": "#45c79b",
    "proxy": "#ee8cc4",
    "sampled": "#f0a04b",
    "advantage": "#b8a2f5",
    "part1": "#6aabff",
    "part2": "#f0a04b",
    "part3": "#45c79b",
    "part4": "#ee8cc4",
    "part5": "#b8a2f5",
    "part6": "#98a4b5",
}

# Surfaces and ink: card, well (tiles, tracks), border, ink, muted ink, accent (what can be pressed), alarm.
LIGHT_GROUND = {
    "card": "#ffffff",
    "well": "#f2f5f9",
    "edge": "#d6dce5",
    "field": "#7b8798",
    "ink": "#1a2130",
    "muted": "#55606f",
    "accent": "#1f6fd6",
    "alarm": "#b42318",
}
DARK_GROUND = {
    "card": "#171b22",
    "well": "#222833",
    "edge": "#3a424f",
    "field": "#7d899b",
    "ink": "#eef1f6",
    "muted": "#a9b3c2",
    "accent": "#6aabff",
    "alarm": "#ff9c8a",
}


def variables(dark: bool) -> str:
    """The palette as CSS custom properties."""
    table = {**DARK, **DARK_GROUND} if dark else {**LIGHT, **LIGHT_GROUND}
    return "".join(f"--lab-{name}:{color};" for name, color in table.items())
