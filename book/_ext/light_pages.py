"""Sphinx extension: takes out of the built site what its pages move and do not use.

The theme draws its icons with a script that holds every icon there is, and carries fonts with all of them. Here its
style sheet draws them, and sheet and fonts keep the icons that the site shows. The theme also loads the search index
on every page, for a search as one types; that is off, and the page of the search loads the index itself.
"""

import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

STATIC = "_static"
SHEET = "styles/pydata-sphinx-theme.css"
FONTS = "vendor/fontawesome/webfonts"
ICON_SCRIPT = "fontawesome"
SEARCH_SCRIPTS = ("searchtools", "language_data", "searchindex")

ICON = re.compile(r"\bfa-[a-z0-9-]+")
ICON_TAG = re.compile(r'<(i|span) (?=class="[^"]*\bfa-)')
# .fa-bars:before,.fa-navicon:before{content:"\f0c9"}
ICON_RULE = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"([^"]+)"\}')
# In style sheets an icon is a character for private use, written as itself or by its number.
PRIVATE = re.compile(r"[\ue000-\uf8ff]|\\([ef][0-9a-f]{3})\b")
TRUETYPE = re.compile(r',url\([^)]*\.ttf\) format\("truetype"\)')


def script_tag(*names):
    """What finds the tags that load one of the scripts."""
    return re.compile(rf'\s*<script\b[^>]*\bsrc="[^"]*\b(?:{"|".join(names)})\.js[^"]*"[^>]*></script>')


ICON_TAGS, SEARCH_TAGS = script_tag(ICON_SCRIPT), script_tag(*SEARCH_SCRIPTS)


def lighter(html, searches):
    """A page without the scripts it does not use; a screen reader passes over icons, as that script saw to."""
    html = ICON_TAGS.sub("", html)
    if not searches:
        html = SEARCH_TAGS.sub("", html)
    return ICON_TAG.sub(r'<\1 aria-hidden="true" ', html)


def lighter_sheet(sheet, icons):
    """The theme's style sheet with the rules of these icons only, and without the fonts' second format."""

    def keep(rule):
        return rule[0] if icons & set(ICON.findall(rule[1])) else ""

    return TRUETYPE.sub("", ICON_RULE.sub(keep, sheet))


def characters(sheets):
    """The code points for private use in style sheets."""
    return {int(found[1], 16) if found[1] else ord(found[0]) for sheet in sheets for found in PRIVATE.finditer(sheet)}


def write_lighter_font(path, code_points):
    """Leave in a font the glyphs of these code points."""
    options = subset.Options(flavor="woff2", layout_features=[], hinting=False, notdef_outline=True)
    with TTFont(path, recalcTimestamp=False) as font:
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=code_points)
        subsetter.subset(font)
        subset.save_font(font, path, options)


def make_site_lighter(app, error):
    """Go through the built site. What Sphinx has copied anew since the last build is made lighter again."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    static = site / STATIC
    pages = [path for path in site.rglob("*.html") if static not in path.parents]
    for path in pages:
        html = path.read_text(encoding="utf-8")
        light = lighter(html, searches=path.name == "search.html")
        if light != html:
            path.write_text(light, encoding="utf-8")
    for path in (static / "scripts").glob(f"{ICON_SCRIPT}.js*"):
        path.unlink()

    users = [*pages, *static.rglob("*.js")]
    icons = {icon for path in users for icon in ICON.findall(path.read_text(encoding="utf-8"))}
    sheet = static / SHEET
    sheet.write_text(lighter_sheet(sheet.read_text(encoding="utf-8"), icons), encoding="utf-8")
    code_points = characters(path.read_text(encoding="utf-8") for path in static.rglob("*.css"))
    for path in (static / FONTS).iterdir():
        if path.suffix == ".woff2":
            write_lighter_font(path, code_points)
        else:
            path.unlink()


def setup(app):
    """Register with Sphinx."""
    app.connect("build-finished", make_site_lighter)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
