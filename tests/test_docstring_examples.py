"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "labsrc").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_there_are_examples_to_run():
    assert "labsrc.grpo" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_every_example_prints_what_its_docstring_says(name, capsys):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0, capsys.readouterr().out
