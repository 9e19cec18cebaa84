"""The built site: whole, readable, and on its own, served or opened from disk."""

import re

import pytest
import site_pages
import yaml
from conftest import ROOT

# ---------------------------------------------------------------- as files


@pytest.fixture(scope="module")
def pages(site):
    found = site_pages.pages(site)
    assert len(found) > 4, "hardly a page was found, so nothing was checked"
    return found


def faults(pages, check):
    """What `check(page)` finds wrong, each with its page's name."""
    return [f"{page.path.name}: {fault}" for page in pages for fault in check(page)]


def test_every_page_has_a_language_and_a_title_of_its_own(pages):
    assert [page.path.name for page in pages if page.language != "en" or not page.title.strip()] == []
    titles = [page.title.strip() for page in pages if page.path.name != "index.html"]
    assert len(titles) == len(set(titles))


def test_every_link_inside_the_site_resolves(pages):
    checked = [link for page in pages for link in page.links if not site_pages.is_elsewhere(link)]
    assert len(checked) > len(pages)
    assert faults(pages, lambda page: filter(None, (site_pages.broken(page, link) for link in page.links))) == []


def test_every_file_a_page_loads_is_in_the_site(pages):
    assert faults(pages, lambda page: filter(None, (site_pages.broken(page, file) for file in page.fetched))) == []


def test_no_page_and_no_style_sheet_names_a_file_on_another_host(site, pages):
    assert faults(pages, lambda page: filter(site_pages.is_elsewhere, page.fetched)) == []
    sheets = list((site / "_static").rglob("*.css"))
    assert sheets
    assert [(s.name, a) for s in sheets for a in site_pages.addresses_in_css(s) if site_pages.is_elsewhere(a)] == []


def test_every_picture_says_in_words_what_it_shows(pages):
    # docutils puts the file's name where a picture was given no words.
    def unnamed(page):
        for picture in page.pictures:
            alt = (picture.get("alt") or "").strip()
            if not alt or re.fullmatch(r"\S+\.(png|svg|jpe?g|gif)", alt):
                yield f"{picture.get('src', '')[-40:]} has the alt {alt!r}"

    assert faults(pages, unnamed) == []


def test_every_page_of_the_contents_and_every_notebook_is_in_the_site(site):
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    named = [contents["root"]] + [c["file"] for part in contents["parts"] for c in part["chapters"]]
    assert [name for name in named if not (site / f"{name}.html").is_file()] == []
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks - set(named) == set()


def test_no_raw_markup_of_the_source_reaches_a_page(site, pages):
    # What a missing extension or a mistyped directive leaves behind.
    leftovers = re.compile(r"```\{|:::\{|\{(?:eq|ref|cite:p|cite:t|numref|prf:ref|glue:?\w*)\}`|\$\$")

    def raw(page):
        body = page.path.read_text(encoding="utf-8").partition("<main")[2].partition("</main>")[0]
        prose = re.sub(r"<(pre|script|style|code)\b.*?</\1>", "", body, flags=re.DOTALL)
        return leftovers.findall(prose)

    assert faults(pages, raw) == []


def test_a_broken_link_a_foreign_file_and_an_unnamed_picture_are_seen(tmp_path):
    (tmp_path / "other.html").write_text("<html><body><p id='here'></p></body></html>")
    (tmp_path / "page.html").write_text(
        "<html lang='en'><head><title>A page</title><link rel='icon' href='https://cdn.example/i.png'>"
        "<link rel='canonical' href='https://book.example/'></head><body><main><img src='x.png'>"
        "<svg><title>not this one</title></svg></main></body></html>"
    )
    (tmp_path / "sheet.css").write_text("@import '//cdn.example/a.css'; /* url(//no) */ a { background: url(b.png) }")
    page = site_pages.read_page(tmp_path / "page.html")
    assert (page.language, page.title) == ("en", "A page")
    assert page.pictures == [{"src": "x.png"}]
    assert [file for file in page.fetched if site_pages.is_elsewhere(file)] == ["https://cdn.example/i.png"]
    assert site_pages.broken(page, "x.png") and site_pages.broken(page, "other.html#there")
    (tmp_path / "lab.html").write_text('<align-lab data-name="tilt"></align-lab>')
    assert site_pages.broken(page, "lab.html#lab=clip&ratio=2") and not site_pages.broken(page, "lab.html#lab=tilt")
    assert not site_pages.broken(page, "other.html#here") and not site_pages.broken(page, "https://arxiv.org/")
    assert site_pages.addresses_in_css(tmp_path / "sheet.css") == ["b.png", "//cdn.example/a.css"]


# ---------------------------------------------------------------- in a browser

# The front page only leads on to the first page of the book; a test of its own follows it there.


@pytest.fixture(scope="module")
def reading_pages(site, pages):
    return [page for page in pages if page.path != site / "index.html"]


OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.browser
def test_no_page_asks_another_host_for_anything_or_logs_an_error(site, reading_pages, site_address, visit):
    outside, errors, with_maths = {}, {}, 0
    for page in reading_pages:
        name = page.path.relative_to(site).as_posix()
        seen = visit(site_address + name)
        # Scroll through, so that what loads late loads now.
        seen.page.evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
        seen.page.wait_for_load_state("networkidle")
        with_maths += seen.page.locator("mjx-container").count() > 0
        errors[name] = seen.errors + seen.page.locator("mjx-merror").all_text_contents()
        outside[name] = seen.outside
        seen.page.context.close()
    assert {name: urls for name, urls in outside.items() if urls} == {}
    assert {name: texts for name, texts in errors.items() if texts} == {}
    assert with_maths, "no page showed a formula, so MathJax was not tried"


@pytest.mark.browser
def test_every_page_works_from_disk_on_a_phone_in_the_dark(site, reading_pages, visit):
    wrong = {}
    for page in reading_pages:
        seen = visit(page.path.as_uri(), width=390, dark=True)
        name = page.path.relative_to(site).as_posix()
        wrong[name] = seen.errors + seen.outside + seen.page.locator("mjx-merror").all_text_contents()
        if (surplus := seen.page.evaluate(OVERFLOW)) > 0:
            wrong[name].append(f"the page is {surplus} px wider than the screen")
        if seen.page.url != page.path.as_uri():
            wrong[name].append(f"led on to {seen.page.url}")
        seen.page.context.close()
    assert {name: faults for name, faults in wrong.items() if faults} == {}


@pytest.mark.browser
def test_the_front_page_leads_to_the_book(site_address, browser):
    page = browser.new_page()
    page.goto(site_address)
    page.wait_for_url("**/book/index.html")
    assert page.locator("article h1").count() == 1
    page.context.close()


@pytest.mark.browser
@pytest.mark.parametrize("from_disk", [False, True], ids=["served", "from disk"])
def test_search_finds_a_page(site, site_address, visit, from_disk):
    home = f"{site.as_uri()}/" if from_disk else site_address
    seen = visit(f"{home}search.html?q=notation")
    found = seen.page.locator("#search-results li a", has_text="Notation").first
    found.wait_for()
    assert seen.outside == []
    # Opened from disk, a browser refuses the script the texts under the results, and says so: only they are missing.
    assert from_disk or seen.errors == []
    found.click()
    seen.page.wait_for_url("**/book/notation.html*")


@pytest.mark.browser
def test_an_error_and_a_request_to_another_host_would_be_noticed(tmp_path, visit):
    page = tmp_path / "page.html"
    page.write_text("<html><body><script src='https://cdn.invalid/a.js'></script><script>oops()</script></body></html>")
    seen = visit(page.as_uri())
    assert seen.outside == ["https://cdn.invalid/a.js"]
    assert any("oops" in error for error in seen.errors)


def test_recorded_runs_are_asked_for_by_the_pages_that_replay_them_and_no_other(site):
    texts = {page.path.name: page.path.read_text(encoding="utf-8") for page in site_pages.pages(site)}
    asking = {name for name, text in texts.items() if "labs/replay_runs.js" in text}
    assert asking == {name for name, text in texts.items() if 'data-name="replay"' in text}
    assert asking
