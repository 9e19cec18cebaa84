"""Facts that stand in more than one file agree, and what the README promises is there."""

import re

import yaml
from conftest import ROOT

import labsrc

TITLE = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["title"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_title_is_the_same_everywhere():
    assert CITATION["title"] == TITLE
    assert read("README.md").splitlines()[0] == f"# {TITLE}"
    assert read("LICENSE").startswith(TITLE)


def test_the_version_is_the_same_everywhere():
    assert str(CITATION["version"]) == labsrc.__version__


def test_the_citation_has_what_its_format_requires():
    assert {"cff-version", "message", "title", "authors"} <= CITATION.keys()
    assert all("name" in author or "family-names" in author for author in CITATION["authors"])


def test_every_requirement_is_pinned_exactly_and_once():
    lines = [line for line in read("requirements.txt").splitlines() if line and not line.startswith("#")]
    assert lines.pop() == "-e ."
    pins = [re.fullmatch(r"([a-z0-9-]+)==(\d[\w.]*)", line) for line in lines]
    assert all(pins), lines
    names = [pin.group(1) for pin in pins]
    assert len(names) == len(set(names))


def test_every_make_target_the_readme_names_exists():
    named = set(re.findall(r"\bmake (\w+)(?=`|\s+#)", read("README.md")))
    assert {"book", "test", "lab"} <= named
    assert named <= set(re.findall(r"^(\w+):", read("Makefile"), flags=re.MULTILINE))


def test_the_workflows_take_every_action_at_a_commit_and_keep_no_credentials():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"uses: (\S+)", text)
        assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used), path.name
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
