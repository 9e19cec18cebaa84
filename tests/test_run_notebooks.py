"""notebooks/run.py stores what a fresh run prints and nothing else; a failing notebook is left as it was."""

import json
import subprocess
import sys

import nbformat
import notebook_rules as rules
from conftest import ROOT


def write_notebook(path, *sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].update(execution_count=7, metadata={"scrolled": True, "tags": ["hide-input"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "mine"}, "widgets": {"state": {}}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


def run(*paths):
    command = [sys.executable, str(ROOT / "notebooks" / "run.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_stored_notebook_keeps_the_rules_and_loses_what_depends_on_the_moment(tmp_path):
    path = tmp_path / "a.ipynb"
    widget = "import ipywidgets\nipywidgets.Label('here')"
    write_notebook(path, "x = 2", widget, "print(x + 1)")
    done = run(path)
    assert done.returncode == 0, done.stderr
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert [fault for rule in rules.RULES for fault in rule(stored)] == []
    assert stored["cells"][0]["metadata"] == {"tags": ["hide-input"]}
    assert list(stored["cells"][1]["outputs"][0]["data"]) == ["text/plain"]
    assert "".join(stored["cells"][2]["outputs"][0]["text"]) == "3\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.ipynb"]


def test_a_notebook_that_fails_is_left_as_it_was(tmp_path):
    path = tmp_path / "a.ipynb"
    write_notebook(path, "x = 2", "raise ValueError('x is 2')")
    before = path.read_bytes()
    done = run(path)
    assert done.returncode != 0 and "x is 2" in done.stderr
    assert path.read_bytes() == before


def test_normalising_runs_nothing_and_leaves_a_clean_notebook_alone(tmp_path):
    path = tmp_path / "a.ipynb"
    write_notebook(path, "raise ValueError('never run')")
    done = run("--normalise", path)
    assert (done.returncode, done.stdout) == (0, "normalised a.ipynb\n"), done.stderr
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["cells"][0]["metadata"] == {"tags": ["hide-input"]} and "widgets" not in stored["metadata"]
    before = path.read_bytes()
    assert run("--normalise", path).stdout == "" and path.read_bytes() == before
