"""How quickly the labs answer in JupyterLab: `python benchmarks/jupyterlab.py [LAB ...]`.

It starts a JupyterLab of its own, opens the chapters that show labs in a headless Chromium, runs all their cells, and
moves a slider of each lab, the one that draws the most, by keyboard and by mouse. A row a lab: the time from the input
event, through the kernel, to the frame in which the new drawing stands; how many times longer that is than the lab's
own function takes; and how often something was wrong: a frame without the drawing or with it out of place, a drawing
that is not the one labsrc makes of the same settings, an Output widget, an error in a cell. Milliseconds are the wall
clock's.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from labsrc import labs

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from conftest import ROOT, find_chromium
from live_labs import LiveLab, notebooks_with_labs, run_notebook, serving

EVENTS = 30
# From one end to the other: every press changes what is drawn.
KEYS = ("Home", "End")
SHARES = 3 * (0.3, 0.9, 0.5, 0.1, 0.7)


def percentile_95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def row(lab: LiveLab) -> list[str]:
    """Move a slider of one lab; its numbers."""
    faults = lab.has_output_widget() + (not lab.shows_what_its_state_computes())
    # A slider that begins at its lowest value goes to its highest first.
    keys = KEYS if lab.state()[lab.slider.key] > lab.slider.minimum else KEYS[::-1]
    pressed = [lab.press(key) for key in itertools.islice(itertools.cycle(keys), EVENTS)]
    faults += not lab.shows_what_its_state_computes()
    dragged = []
    for share in SHARES:
        dragged.append(lab.drag(share))
        faults += not lab.shows_what_its_state_computes()
    frames, faulty = lab.frames()
    own = own_time(labs.LABS[lab.name])
    numbers = [f"{statistics.median(times):.0f} / {percentile_95(times):.0f}" for times in (pressed, dragged)]
    return [lab.name, *numbers, f"{statistics.median(pressed) / own:.1f}", str(frames), str(faults + faulty)]


def own_time(lab: Any) -> float:
    """Median milliseconds of a lab's function here."""
    lab.compute(lab.state())  # the first call in a process imports and allocates
    spent = []
    for _ in range(9):
        started = time.perf_counter()
        lab.compute(lab.state())
        spent.append(1e3 * (time.perf_counter() - started))
    return statistics.median(spent)


def rows(page: Any, address: Any, notebooks: dict[str, list[str]]) -> Iterator[list[str]]:
    """The rows of all labs, notebook by notebook."""
    for notebook, names in notebooks.items():
        errors = run_notebook(page, address(notebook))
        for name in names:
            found = row(LiveLab(page, name))
            yield [*found[:-1], str(int(found[-1]) + len(errors)), notebook]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab", nargs="*", choices=[[], *labs.LABS], help="only these labs")
    wanted = parser.parse_args().lab or list(labs.LABS)
    chromium = find_chromium()
    if chromium is None:
        parser.error("no Chromium found: install one, or set LABSRC_CHROMIUM")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        found = notebooks_with_labs(ROOT / "notebooks", Path(folder))
        notebooks = {name: [lab for lab in shown if lab in wanted] for name, shown in found.items()}
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        load = (
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown"
        )
        print(f"Input event to drawn frame through the kernel, median / 95th percentile in ms ({load})")
        heads = ["lab", f"{EVENTS} keys", f"{len(SHARES)} drags", "times function", "frames", "faults", "notebook"]
        print("".join(f"{head:<17}" for head in heads))
        with serving(Path(folder)) as address:
            for cells in rows(page, address, {name: shown for name, shown in notebooks.items() if shown}):
                print("".join(f"{cell:<17}" for cell in cells), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
