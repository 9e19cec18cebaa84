"""How quickly the labs answer in a browser: `python benchmarks/labs.py [FOLDER OF THE BUILT SITE]`.

The folder may also come from LABSRC_SITE. A row a lab: the 95th percentile of the time from an input event to the
frame in which the browser has drawn the answer, at 1280 and at 390 pixels, and how long the lab's own function takes.
A row a chapter: bytes that its page moves, gzipped, less MathJax; and the time from opening the page until its first
slider answers. Seconds are the wall clock's: repeat what a busy machine prints (the load stands in every table's head)
on a quiet one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from labsrc import labs
from labsrc.labs.style import style_sheet

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from conftest import find_chromium, load_serve
from labs_demo import SCRIPTS
from site_pages import gzipped

WIDTHS = (1280, 390)
EVENTS, OPENINGS = 120, 5
FRAME_MS, TRAINING_MS, PAGE_KB, USABLE_S = 16.0, 100.0, 700.0, 1.5
SLOW = "bandit"  # it trains a policy for every event

# The handler of an input event runs and leaves the page to be styled, laid out and painted. A message posted from a
# frame's callback is read once that frame has been drawn; the wait for the frame to begin, up to a sixtieth of a
# second, belongs to the screen and not to the lab, so the time before the callback counts only as far as the handler.
MEASURE = """async (events) => {
  const lab = document.querySelector("align-lab"), sliders = [...lab.querySelectorAll("[type=range]")], spent = [];
  for (let index = 0; index < events; index++) {
    const slider = sliders[index % sliders.length], share = (index * 0.381966) % 1;
    await new Promise(requestAnimationFrame);
    slider.value = String(Number(slider.min) + share * (slider.max - slider.min));
    const started = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    const handled = performance.now();
    spent.push(await new Promise((resolve) => requestAnimationFrame(() => {
      const begun = performance.now(), { port1, port2 } = new MessageChannel();
      port1.onmessage = () => resolve(handled - started + performance.now() - begun);
      port2.postMessage(null);
    })));
  }
  return spent;
}"""
COMPUTE = """([name, state, times]) => {
  const started = performance.now();
  for (let index = 0; index < times; index++) alignLabs.twins[name](structuredClone(state));
  return (performance.now() - started) / times;
}"""


def load() -> str:
    """The machine's load, as the head of a table gives it."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown"


def judged(value: float, limit: float, digits: int = 1) -> str:
    """A figure, starred where it misses its target."""
    return f"{value:.{digits}f}{'*' if value > limit else ''}"


def percentile_95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def lab_rows(browser: Browser, folder: Path) -> Iterator[list[str]]:
    """One row a lab, each lab alone on a bare page."""
    tags = "".join(f'<script src="{path.as_uri()}"></script>' for path in SCRIPTS)
    for lab in labs.LABS.values():
        page_file = folder / f"{lab.name}.html"
        head = (
            f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><style>{style_sheet()}</style>"
        )
        page_file.write_text(
            f"<!DOCTYPE html><html><head>{head}</head><body>{lab().html()}{tags}</body></html>", "utf-8"
        )
        row = [lab.name]
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.goto(page_file.as_uri())
            page.locator("align-lab[data-live]").wait_for()
            page.evaluate(MEASURE, 20)  # the first events compile the scripts
            spent = percentile_95(page.evaluate(MEASURE, EVENTS))
            row.append(judged(spent, float("inf") if lab.name == SLOW else FRAME_MS))
            own = page.evaluate(COMPUTE, [lab.name, lab.state(), 20])
            page.close()
        yield [*row, judged(own, TRAINING_MS if lab.name == SLOW else FRAME_MS, 2)]


def chapter_rows(browser: Browser, site: Path, home: str) -> Iterator[list[str]]:
    """One row for each page of the site that holds a lab."""
    for path in sorted([*site.glob("book/*.html"), *site.glob("notebooks/*.html")]):
        if "<align-lab" not in path.read_text("utf-8"):
            continue
        address = home + path.relative_to(site).as_posix()
        openings = [opening(browser, address) for _ in range(OPENINGS)]
        seconds = statistics.median(seconds for seconds, _ in openings)
        size = sum(gzipped(site, url) for url in openings[0][1]) / 1e3
        yield [path.stem, judged(size, PAGE_KB, 0), judged(seconds, USABLE_S, 2)]


def opening(browser: Browser, address: str) -> tuple[float, set[str]]:
    """Open a page in a fresh profile: seconds until its first slider answers, and all it asked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page, asked = context.new_page(), set()
    page.on("request", lambda request: asked.add(request.url))
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator("align-lab[data-live] input").first.wait_for(state="attached")
    usable = time.perf_counter() - started
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    context.close()
    return usable, asked


def show(heads: list[str], rows: Iterator[list[str]]) -> None:
    """A table, printed row by row."""
    print(f"{heads[0]:<22}" + "".join(f"{head:>22}" for head in heads[1:]))
    for row in rows:
        print(f"{row[0]:<22}" + "".join(f"{cell:>22}" for cell in row[1:]), flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", nargs="?", default=os.environ.get("LABSRC_SITE"), help="folder of the built site")
    site: Any = parser.parse_args().site
    if site is None or not (Path(site) / "index.html").is_file():
        parser.error("name the folder of the built site, the one that holds index.html, or set LABSRC_SITE")
    site, chromium = Path(site).resolve(), find_chromium()
    if chromium is None:
        parser.error("no Chromium found: install one, or set LABSRC_CHROMIUM")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder, load_serve().serving(site) as home:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        print(
            f"Input event to drawn frame, 95th percentile of {EVENTS} events (wanted: at most {FRAME_MS:g} ms, "
            f"{SLOW} excepted; {SLOW}'s function at most {TRAINING_MS:g} ms; {load()})"
        )
        show(["lab", *(f"{width} px, ms" for width in WIDTHS), "function, ms"], lab_rows(browser, Path(folder)))
        print(
            f"\nPages with a lab (wanted: at most {PAGE_KB:g} kB gzipped before MathJax, first slider usable within "
            f"{USABLE_S:g} s, median of {OPENINGS}; {load()})"
        )
        show(["page", "transfer, kB", "first slider, s"], chapter_rows(browser, site, home))
        browser.close()
    print("* misses its target")


if __name__ == "__main__":
    main()
