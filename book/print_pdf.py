"""Print the book, built as one page, to a PDF: `python book/print_pdf.py _build/singlehtml BOOK.pdf`.

Chromium prints it. The labs' scripts are held back, so that each lab is the figure drawn in advance; folded solutions
stay folded. The PDF is tagged and has bookmarks. It is written whole or not at all.
"""

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FOOT = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'


def chromium():
    """A Chromium: LABSRC_CHROMIUM, else one on the path, else None, which is the one that playwright installed."""
    return os.environ.get("LABSRC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def whole_page(folder):
    """The book's one page in `folder`, moved to where the addresses inside it start: Sphinx writes them from there."""
    page = folder / "whole.html"
    shutil.copyfile(folder / "book" / "index.html", page)
    return page


def print_page(page_file, pdf_file):
    """Print one HTML file; raise RuntimeError if a formula was not set or a picture is missing."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme="light")
        page.set_default_timeout(180_000)
        page.route("**/_static/labs/*.js*", lambda route: route.abort())
        page.goto(page_file.resolve().as_uri(), wait_until="load")
        page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        check(page)
        partial = pdf_file.with_suffix(".partial")
        options = {"display_header_footer": True, "header_template": "<span></span>", "footer_template": FOOT}
        margin = {"top": "18mm", "bottom": "18mm", "left": "16mm", "right": "16mm"}
        page.pdf(path=partial, format="A4", margin=margin, print_background=True, tagged=True, outline=True, **options)
        browser.close()
    os.replace(partial, pdf_file)


def check(page):
    """Refuse a page that would print with holes."""
    errors = page.locator("mjx-merror").count()
    raw = page.evaluate(
        "() => document.querySelectorAll('.math').length > 0 && !document.querySelector('mjx-container')"
    )
    blank = page.evaluate("() => [...document.images].filter(one => !one.naturalWidth).map(one => one.src)")
    if errors or raw or blank:
        raise RuntimeError(f"{errors} formulas in error, formulas set: {not raw}, pictures missing: {blank}")


def main():
    """Print what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pdf", type=Path)
    given = parser.parse_args()
    print_page(whole_page(given.folder), given.pdf)
    print(f"wrote {given.pdf}")


if __name__ == "__main__":
    main()
