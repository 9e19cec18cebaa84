"""The stored notebooks keep the rules, and every rule catches the fault it is there for."""

import copy
import json
from pathlib import Path

import nbformat
import notebook_rules as rules
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))

# Comments and tags that tell nbval to look away, counted by notebook: none so far. One more needs a reason here.
ALLOWED_MARKS: dict[str, int] = {}


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_are_notebooks_to_check():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_stored_notebook_has(rule, path):
    assert list(rule(read(path))) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_is_valid_and_marks_nothing_unlooked(path):
    nbformat.validate(nbformat.read(path, as_version=4))
    assert len(rules.nbval_marks(read(path))) == ALLOWED_MARKS.get(path.name, 0)


# ---------------------------------------------------------------- the rules themselves


def code(source, *outputs, count=1, **metadata):
    return {
        "cell_type": "code",
        "source": source,
        "outputs": list(outputs),
        "execution_count": count,
        "metadata": metadata,
    }


def stream(words, name="stdout"):
    return {"output_type": "stream", "name": name, "text": words}


def shown(**data):
    kinds = {"plain": "text/plain", "html": "text/html", "png": "image/png", "view": VIEW}
    return {"output_type": "display_data", "metadata": {}, "data": {kinds[k]: v for k, v in data.items()}}


VIEW = "application/vnd.jupyter.widget-view+json"
ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}


def notebook(*cells, **metadata):
    whole = {**copy.deepcopy(rules.METADATA), **metadata}
    return {"cells": list(cells), "metadata": whole, "nbformat": 4, "nbformat_minor": 5}


FAULTS = [
    (rules.run_once_from_top_to_bottom, notebook(code("1", count=None))),
    (rules.run_once_from_top_to_bottom, notebook(code("1", count=2), code("1", count=1))),
    (rules.run_once_from_top_to_bottom, notebook(code("1", count=1), code("1", count=3))),
    (rules.no_empty_code_cell, notebook(code(" \n"))),
    (rules.metadata_of_no_machine, notebook(kernelspec={"name": "venv"})),
    (rules.metadata_of_no_machine, notebook(language_info={"name": "python", "version": "3.11.7"})),
    (rules.metadata_of_no_machine, notebook(widgets={})),
    (rules.metadata_of_no_machine, notebook(code("1", execution={"iopub": "now"}))),
    (rules.no_trailing_semicolon, notebook(code("ax.plot(x);  \n"))),
    (rules.plain_python, notebook(code("%matplotlib inline"))),
    (rules.plain_python, notebook(code("!pip install torch"))),
    (rules.no_class_and_no_long_def, notebook(code("class A:\n    pass"))),
    (rules.no_class_and_no_long_def, notebook(code("def f():\n" + "    x = 1\n" * 8))),
    (rules.no_error_and_no_stderr, notebook(code("1", ERROR))),
    (rules.no_error_and_no_stderr, notebook(code("1", stream("UserWarning: x", name="stderr")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", shown(plain="<function f at 0x7f3a2c1b>")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("/home/me/book/labsrc/kl.py")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("C:\\Users\\me\\book")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("1.2 ms")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("Wall time: 3 s")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("ran 2026-01-02 10:11")))),
    (rules.outputs_the_same_everywhere, notebook(code("f", stream("loss 0.6807284280340413")))),
    (rules.no_stored_widget_view, notebook(code("f", shown(view={"model_id": "1"}, html="<p>a</p>")))),
    (rules.pictures_say_what_they_show, notebook(code("f", shown(png="aGk=")))),
    (rules.pictures_say_what_they_show, notebook(code("f", shown(html="<img src='x' alt=''>")))),
    (rules.pictures_say_what_they_show, notebook(code("f", shown(html="<svg viewBox='0 0 1 1'></svg>")))),
    (
        rules.pictures_say_what_they_show,
        notebook({"cell_type": "markdown", "source": "![](a.png)", "metadata": {}}),
    ),
]


@pytest.mark.parametrize(("rule", "bad"), FAULTS, ids=[rule.__name__ for rule, _ in FAULTS])
def test_a_fault_is_caught_by(rule, bad):
    assert list(rule(bad))


def test_every_rule_is_shown_a_fault():
    assert {rule for rule, _ in FAULTS} == set(rules.RULES)


@pytest.mark.parametrize("mark", ["# NBVAL_IGNORE_OUTPUT\nf()", "f()\n#NBVAL_SKIP"])
def test_comments_that_make_nbval_look_away_are_counted(mark):
    assert len(rules.nbval_marks(notebook(code(mark)))) == 1


def test_tags_that_make_nbval_look_away_are_counted():
    assert len(rules.nbval_marks(notebook(code("f()", tags=["nbval-skip", "raises-exception"])))) == 2


def test_a_good_notebook_has_no_fault():
    good = notebook(
        {"cell_type": "markdown", "source": "![two bars](bars.svg)", "metadata": {}},
        code("def f(x):\n    return 2 * x\n\nprint(f(0.34036))", stream("0.68072\n")),
        code("draw()", shown(png="aGk="), count=2, mystnb={"image": {"alt": "Two bars, the second higher"}}),
        code("lab", shown(plain="Tilt", html="<svg role='img' aria-label='Two bars'></svg>"), count=3),
    )
    assert [fault for rule in rules.RULES for fault in rule(good)] == []
    assert rules.nbval_marks(good) == []
