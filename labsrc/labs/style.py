"""The one style sheet of the labs: palette and rules, for the page and for the notebook."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from labsrc.labs.palette import LIGHT, variables

_DARK_HOMES = 'html[data-theme="dark"] .lab-card,body[data-jp-theme-light="false"] .lab-card'


@cache
def style_sheet() -> str:
    """The whole style sheet. Colours follow the site's theme and JupyterLab's; print is always light."""
    roles = "".join(
        f".lab-role-{role}{{background-color:var(--lab-{role})}}"
        f".lab-stroke-{role}{{stroke:var(--lab-{role})}}"
        f".lab-ink-{role}{{color:var(--lab-{'muted' if role == 'reference' else role})}}"
        for role in LIGHT
    )
    rules = Path(__file__).with_name("labs.css").read_text(encoding="utf-8")
    light, dark = variables(dark=False), variables(dark=True)
    return (
        f".lab-card{{color-scheme:light;{light}}}\n@media screen{{{_DARK_HOMES}{{color-scheme:dark;{dark}}}}}\n"
        f"{roles}\n{rules}"
    )
