"""What the pages of the built site move: no more than they use, and every icon is still drawn."""

import re
from pathlib import Path

import pydata_sphinx_theme
import pytest
import site_pages
from fontTools.ttLib import TTFont

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
SHEET = "styles/pydata-sphinx-theme.css"
FONTS = "vendor/fontawesome/webfonts"
# Less MathJax, which comes once for all pages and after everything else.
LARGEST_PAGE = 700e3


@pytest.fixture(scope="module")
def texts(site):
    return {page.path.name: page.path.read_text(encoding="utf-8") for page in site_pages.pages(site)}


def icon_characters(sheet):
    """The character that a style sheet gives each icon: fa-bars is U+F0C9."""
    rules = re.findall(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\(\w+)\s?"\}', sheet)
    return {name: int(number, 16) for names, number in rules for name in re.findall(r"fa-[\w-]+", names)}


@pytest.fixture(scope="module")
def drawn(texts):
    """The icons that pages and the theme's scripts name, each with its character in the theme's own style sheet."""
    known = icon_characters((THEME / SHEET).read_text(encoding="utf-8"))
    assert known["fa-bars"] == 0xF0C9
    scripts = [(THEME / "scripts" / "pydata-sphinx-theme.js").read_text(encoding="utf-8")]
    named = {name for text in [*texts.values(), *scripts] for name in re.findall(r"\bfa-[\w-]+", text)}
    return {name: known[name] for name in named & set(known)}


def glyphs(path):
    """The characters for which a font has a glyph with an outline."""
    with TTFont(path) as font:
        outlines = font["glyf"]
        return {code for code, name in font.getBestCmap().items() if outlines[name].numberOfContours}


def test_every_icon_of_every_page_has_its_rule_and_its_glyph(site, drawn):
    assert {"fa-bars", "fa-magnifying-glass", "fa-moon", "fa-xmark"} <= set(drawn)
    rules = icon_characters((site / "_static" / SHEET).read_text(encoding="utf-8"))
    assert {name: rules.get(name) for name in drawn} == drawn
    assert set(drawn.values()) <= glyphs(site / "_static" / FONTS / "fa-solid-900.woff2")


def test_every_character_for_an_icon_in_a_style_sheet_has_its_glyph(site):
    # Boxes for hints and warnings have icons that no class names.
    fonts = sorted((site / "_static" / FONTS).glob("*.woff2"))
    held = set().union(*(glyphs(font) for font in fonts))
    found = set()
    for sheet in (site / "_static").rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        found |= {ord(character) for character in re.findall(r"[\ue000-\uf8ff]", text)}
        found |= {int(number, 16) for number in re.findall(r"\\([ef][0-9a-f]{3})\b", text)}
    assert len(fonts) == 3 and len(found) > 15
    assert found - held == set()
    assert {path.suffix for path in (site / "_static" / FONTS).iterdir()} == {".woff2"}


def test_no_page_loads_what_it_does_not_use(texts):
    assert "fontawesome.js" not in "".join(texts.values())
    assert [name for name, text in texts.items() if "searchindex.js" in text] == ["search.html"]


def test_a_screen_reader_passes_over_every_icon(texts):
    tags = [tag for text in texts.values() for tag in re.findall(r"<\w+ [^>]*\bfa-solid\b[^>]*>", text)]
    assert len(tags) > len(texts)
    assert [tag for tag in tags if 'aria-hidden="true"' not in tag] == []


# ---------------------------------------------------------------- in a browser

# Whether the font that the page has loaded draws a character, and not as it draws one that no font has.
IS_DRAWN = """async (codes) => {
  await document.fonts.load('900 40px "Font Awesome 6 Free"', String.fromCharCode(codes[0]));
  const pixels = (code) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 60, height: 60 });
    const pen = canvas.getContext("2d");
    pen.font = '900 40px "Font Awesome 6 Free"';
    pen.fillText(String.fromCharCode(code), 5, 45);
    return [...pen.getImageData(0, 0, 60, 60).data].join();
  };
  const nothing = [pixels(0x20), pixels(0xeffe)];
  return codes.filter((code) => !nothing.includes(pixels(code)));
}"""
SHOWN = """() => {
  const icons = [...document.querySelectorAll("[class*=fa-solid]")].filter((icon) => icon.checkVisibility());
  return icons.map((icon) => {
    const { content, fontFamily } = getComputedStyle(icon, "::before");
    return [content.charCodeAt(1), fontFamily, icon.parentElement.getBoundingClientRect().width];
  });
}"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_browser_draws_every_icon(site_address, visit, drawn, width):
    page = visit(f"{site_address}notebooks/01_kl_rlhf.html", width=width).page
    codes = sorted(set(drawn.values()))
    assert page.evaluate(IS_DRAWN, [*codes, 0xEFFD]) == codes, "a character without a glyph must not count as drawn"
    shown = page.evaluate(SHOWN)
    assert len(shown) >= 5
    assert all(code in codes and "Font Awesome" in family and room > 10 for code, family, room in shown), shown


@pytest.mark.browser
def test_no_page_moves_more_than_its_share(site, site_address, browser):
    sizes = {}
    # The front page leads on to another, and is left before it has loaded.
    for page in [page for page in site_pages.pages(site) if page.path != site / "index.html"]:
        context, asked = browser.new_context(), set()
        open_page = context.new_page()
        open_page.on("request", lambda request, asked=asked: asked.add(request.url))
        open_page.goto(site_address + page.path.relative_to(site).as_posix(), wait_until="load")
        sizes[page.path.name] = sum(site_pages.gzipped(site, url) for url in asked)
        context.close()
    assert min(sizes.values()) > 50e3, "so little can only be a page that did not load"
    assert {name: size for name, size in sizes.items() if size > LARGEST_PAGE} == {}
