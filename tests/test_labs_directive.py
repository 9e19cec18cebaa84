"""The {lab} directive: a live lab in a Markdown page, its text elsewhere, and a named error for what cannot be."""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from labsrc import labs

EXTENSIONS = Path(__file__).resolve().parent.parent / "book" / "_ext"

PAGE = """# A page

```{lab} tilt
```

```{lab} tilt
:beta: 0.25
:rewards: -1, 0.5, 2
:weights: [1, 1, 2]
```

```{lab} tilt
:preset: Outside the support
:beta: 3
```
"""

FAULTS = {
    "```{lab} nobody\n```": "no lab is called 'nobody'; there are ",
    "```{lab} tilt\n:beta: 0\n```": "lab tilt: beta must be from 0.01 to 100; got 0",
    "```{lab} tilt\n:beta: high\n```": "lab tilt: beta must be a number; got 'high'",
    "```{lab} tilt\n:rewards: 1, 2\n```": "lab tilt: rewards and weights must have one entry for each action",
    "```{lab} tilt\n:preset: Nothing\n```": "lab tilt: preset must be one of",
}


def build(folder, builder, text):
    """Run Sphinx on one page; return the finished process."""
    folder.mkdir(exist_ok=True)
    (folder / "index.md").write_text(text, encoding="utf-8")
    settings = ["-D", "extensions=myst_parser,labs", "-D", "root_doc=index"]
    command = [sys.executable, "-m", "sphinx", "-q", "-C", "-b", builder, *settings, str(folder), str(folder / builder)]
    path = {"PYTHONPATH": str(EXTENSIONS)}
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path}, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("directive")


def test_a_page_gets_each_lab_at_its_setting_and_the_style_sheet(folder):
    done = build(folder, "html", PAGE)
    assert (done.returncode, done.stderr) == (0, "")
    page = (folder / "html" / "index.html").read_text(encoding="utf-8")
    carried = [json.loads(unescape(text)) for text in re.findall(r"data-lab='([^']*)'", page)]
    outside = next(preset.state for preset in labs.tilt.presets if preset.label == "Outside the support")
    assert [one["state"] for one in carried] == [
        labs.tilt.state(),
        {"beta": 0.25, "rewards": [-1, 0.5, 2], "weights": [1, 1, 2]},
        {**outside, "beta": 3},
    ]
    assert labs.tilt(beta=0.25, rewards=[-1, 0.5, 2], weights=[1, 1, 2]).html() in page
    sheet = re.search(r'href="(_static/labs/labs\.css)[^"]*"', page)[1]
    assert ".lab-card" in (folder / "html" / sheet).read_text(encoding="utf-8")


def test_where_the_output_is_no_html_the_labs_words_stand(folder):
    done = build(folder, "text", PAGE)
    assert (done.returncode, done.stderr) == (0, "")
    text = (folder / "text" / "index.txt").read_text(encoding="utf-8")
    assert all(line in text for line in repr(labs.tilt()).splitlines()) and "align-lab" not in text


def test_what_a_lab_refuses_is_an_error_of_the_build_that_names_it(tmp_path):
    done = build(tmp_path / "bad", "html", "# A page\n\n" + "\n\n".join(FAULTS))
    assert [message for message in FAULTS.values() if message not in done.stderr] == []
