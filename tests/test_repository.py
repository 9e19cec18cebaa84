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


def test_dependabot_leaves_the_other_jupyter_book_alone_and_every_issue_form_asks_something():
    updates = yaml.safe_load(read(".github/dependabot.yml"))["updates"]
    ignored = {rule["dependency-name"]: rule.get("versions") for update in updates for rule in update.get("ignore", [])}
    assert ignored["jupyter-book"] == [">=2"]
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_every_hook_is_a_program_of_the_environment_and_every_file_named_to_contributors_exists():
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    assert {hook["language"] for hook in hooks[0]["hooks"]} == {"system"}
    named = re.findall(
        r"`((?:book|tests|labsrc|notebooks)/[\w./]+\.\w+|_toc\.yml|pyproject\.toml)`", read("CONTRIBUTING.md")
    )
    placeholders = re.compile(r"NN_name|/name\.|_name\.|chapter\.py")
    assert len(named) > 8
    assert [name for name in named if not placeholders.search(name) and not (ROOT / name).is_file()] == []
