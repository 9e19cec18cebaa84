"""book/print_pdf.py prints the one-page book, labs asleep, and refuses a page with holes (not the whole book here)."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, find_chromium

HEAD = "<html lang='en'><head><title>A</title>{script}</head>"
PAGE = HEAD + "<body><main><h1>A</h1><p>drawn</p>{more}</main></body></html>"
PICTURE = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/%3E"


def print_book(folder, more="", script=""):
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium found: install one, run `playwright install chromium`, or set LABSRC_CHROMIUM")
    (folder / "book").mkdir(parents=True)
    (folder / "book" / "index.html").write_text(PAGE.format(more=more, script=script), encoding="utf-8")
    command = [sys.executable, str(ROOT / "book" / "print_pdf.py"), str(folder), str(folder / "book.pdf")]
    environment = {**os.environ, "LABSRC_CHROMIUM": executable}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.browser
def test_a_page_is_printed_with_the_labs_scripts_held_back(tmp_path):
    lab = tmp_path / "_static" / "labs" / "element.js"
    lab.parent.mkdir(parents=True)
    # Were the script run, a picture would be missing, and the page refused.
    lab.write_text("document.addEventListener('DOMContentLoaded', () => document.body.append(new Image()));")
    done = print_book(tmp_path, f'<img alt="a" src="{PICTURE}">', '<script src="_static/labs/element.js"></script>')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "book.pdf").read_bytes().startswith(b"%PDF")
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.browser
@pytest.mark.parametrize(
    "hole", ["<img alt='a' src='gone.png'>", "<p class='math'>x</p>", "<mjx-merror>x</mjx-merror>"]
)
def test_a_page_with_a_hole_is_refused_and_nothing_is_written(tmp_path, hole):
    done = print_book(tmp_path, hole)
    assert done.returncode != 0 and "RuntimeError" in done.stderr
    assert not (tmp_path / "book.pdf").exists()
