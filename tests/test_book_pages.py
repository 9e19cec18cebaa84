"""What the build writes by itself: indexes, the reference of labsrc, the glossary's links; and the teaching page."""

import json
import re
import sys
from html import unescape

import pytest
from conftest import ROOT

from labsrc.labs.exercises import check, exercises

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import api_pages
import glossary_links


def body(site, name):
    """The HTML of a page's article."""
    page = (site / f"{name}.html").read_text(encoding="utf-8")
    return page.partition("<article")[2].partition("</article>")[0]


def words(markup):
    return unescape(re.sub(r"<[^>]+>", "", markup))


def notebooks_and_cells():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            yield path.stem, cell["cell_type"], "".join(cell["source"])


# ---------------------------------------------------------------- indexes


def test_the_index_of_exercises_leads_to_each_exercise_a_notebook_checks_and_asks_its_question(site):
    asked = {
        (stem, key)
        for stem, kind, source in notebooks_and_cells()
        if kind == "code"
        for key in re.findall(r'exercises\.check\("([\w-]+)"', source)
    }
    page = body(site, "book/index_of_exercises")
    assert asked and {key for _, key in asked} == set(exercises())
    assert set(re.findall(r"notebooks/(\w+)\.html#exercise-([\w-]+)", page)) == asked
    lines = [words(line) for line in re.findall(r"<li><p>(.*?)</p>", page, flags=re.DOTALL)]
    assert [
        line for line in lines if not re.match(r"[\w-]+ \((a number|a choice|code)\): \s*\S.{15}", line, re.S)
    ] == []


def test_the_index_of_labs_leads_to_each_lab_a_notebook_calls(site):
    called = {
        (stem, name)
        for stem, kind, source in notebooks_and_cells()
        if kind == "code"
        for name in re.findall(r"\blabs\.(\w+)\(", source)
    }
    found = set(re.findall(r"notebooks/(\w+)\.html#lab-(\w+)", body(site, "book/index_of_labs")))
    assert called and found == called


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("pitfalls", r'^:::\{admonition\} (".*)\n:class: warning'),
        ("theorems", r"^:::\{prf:(?:theorem|lemma|proposition|corollary)\} (.+)"),
    ],
)
def test_the_index_has_as_many_lines_as_the_notebooks_have(site, name, written):
    sources = [source for _, kind, source in notebooks_and_cells() if kind == "markdown"]
    count = sum(len(re.findall(written, source, flags=re.MULTILINE)) for source in sources)
    assert count and body(site, f"book/index_of_{name}").count("<li>") == count


# ---------------------------------------------------------------- the reference


def test_every_public_module_stands_in_the_reference_once(site):
    pages = [body(site, f"book/api/{name}") for name in ("formulas", "toylm", "labs")]
    shown = [name for page in pages for name in re.findall(r'id="module-(labsrc[\w.]*)"', page)]
    assert sorted(shown) == sorted(api_pages.module_names("labsrc"))
    assert len(shown) > 40


def test_the_reference_says_what_a_docstring_says(site):
    page = body(site, "book/api/formulas")
    assert 'id="labsrc.kl.kl_divergence"' in page
    assert "Exact KL(p‖q) = Σ_a p(a)·log(p(a)/q(a)) on the last axis." in words(page)


def test_docstrings_keep_their_marks_as_restructured_text():
    lines = ["Value x_ and a*b of `kl_k1`, |d|.", "", ">>> f(*args)", "2", "", "    indented"]
    assert api_pages.as_rst(lines) == [
        r"Value x\_ and a\*b of ``kl_k1``, \|d\|.", "", ">>> f(*args)", "2", "", "::", "", "    indented",
    ]  # fmt: skip


# ---------------------------------------------------------------- the glossary


def test_terms_are_whole_words_and_the_longest_counts():
    pattern = glossary_links.pattern_of(["policy", "reference policy", "on-policy", "critic"])
    assert [m[0] for m in pattern.finditer("The reference policy, off-policy; policies, critics")] == [
        "reference policy",
        "critics",
    ]


def test_a_chapter_links_each_term_once_and_carries_its_definition(site):
    page = (site / "notebooks" / "02_dpo.html").read_text(encoding="utf-8")
    used = re.findall(r'glossary-link[^>]*#(term-[\w-]+)"', page)
    assert len(used) > 5 and len(used) == len(set(used))
    assert set(re.findall(r'data-term="([^"]+)"', page)) == set(used)


@pytest.mark.browser
@pytest.mark.parametrize("from_disk", [False, True], ids=["served", "from disk"])
def test_a_term_shows_its_definition_on_hover_and_focus_and_escape_hides_it(site, site_address, visit, from_disk):
    home = f"{site.as_uri()}/" if from_disk else site_address
    seen = visit(f"{home}book/map.html")
    link, tip = seen.page.locator("a.glossary-link").first, seen.page.locator("#glossary-tip")
    assert not tip.is_visible()
    link.hover()
    assert tip.is_visible() and len(tip.inner_text()) > 30
    seen.page.keyboard.press("Escape")
    assert not tip.is_visible()
    link.focus()
    assert tip.is_visible() and link.get_attribute("aria-describedby") == "glossary-tip"
    assert seen.errors == []


# ---------------------------------------------------------------- teaching


def test_the_checker_knows_every_answer_to_expect():
    table = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (-?[\d.]+) \|", table, flags=re.MULTILINE)
    assert len(rows) > 5
    verdicts = {row: check(row[0], float(row[1])) for row in rows}
    assert [row for row, verdict in verdicts.items() if verdict.state != "wrong" or "Hint:" in verdict.message] == []


def test_every_key_of_an_exercise_the_teaching_page_names_exists():
    page = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:kl|dpo|group|clip)-\d+)`", page))
    assert named and named <= set(exercises())
