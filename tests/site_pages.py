"""Read the built site as files: pages, their links and what they load."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes whose address the browser fetches by itself; an <a href> only leads somewhere.
FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "video": ("src", "poster"),
}
# Link relations that only state an address.
STATED = {"canonical", "index", "search", "next", "prev", "license", "author", "alternate"}


@dataclass
class Page(HTMLParser):
    """What one page says and asks for."""

    path: Path
    language: str = ""
    title: str = ""
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    pictures: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self.feed(self.path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._inside = tag
        if tag == "html":
            self.language = values.get("lang") or ""
        if tag in ("main", "title"):
            self._open.append(tag)
        if values.get("id"):
            self.ids.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "img" and "main" in self._open:
            self.pictures.append(values)
        if not (tag == "link" and STATED & set((values.get("rel") or "").split())):
            self.fetched += [values[name] for name in FETCHED.get(tag, ()) if values.get(name)]

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        # An inline <svg> has titles of its own, inside main.
        if self._open == ["title"]:
            self.title += data


@cache
def read_page(path: Path) -> Page:
    """Parse a page once."""
    return Page(path)


def pages(site: Path) -> list[Page]:
    """Every page of the site that a reader can open."""
    return [read_page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]


def is_elsewhere(address: str) -> bool:
    """Whether an address names another host."""
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ftp", "ws", "wss")


def broken(page: Page, address: str) -> str | None:
    """Say what is wrong with a link or a file that `page` names by `address`, or return None."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"{address}: there is no {target.name}"
    fragment = unquote(parts.fragment)
    if setting := re.match(r"lab=(\w+)", fragment):
        shown = f'data-name="{setting[1]}"' in target.read_text(encoding="utf-8")
        return None if shown else f"{address}: {target.name} shows no lab called {setting[1]}"
    if fragment and target.suffix == ".html" and fragment not in read_page(target).ids:
        return f"{address}: {target.name} has no place called {fragment}"
    return None


def addresses_in_css(path: Path) -> list[str]:
    """Every address a style sheet makes the browser fetch."""
    source = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"""url\(\s*["']?([^"')]+)""", source)
    return found + re.findall(r"""@import\s+["']([^"']+)""", source)


def gzipped(site: Path, url: str) -> int:
    """Bytes of one file of the site as a server with gzip sends them, none for MathJax's and for other hosts' files.

    Fonts and pictures are compressed already.
    """
    file = site / unquote(urlsplit(url).path).lstrip("/")
    if "mathjax" in url.lower() or not file.is_file():
        return 0
    content = file.read_bytes()
    return len(content) if file.suffix in (".woff2", ".png", ".jpg", ".webp") else len(gzip.compress(content, 6))
