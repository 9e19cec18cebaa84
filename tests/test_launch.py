"""Buttons for Binder and Colab stand on a chapter when the repository's address is set, and only then."""

import os
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

REPOSITORY = "https://github.com/someone/a-book"


def build(folder, repository):
    """Build a one-notebook site with the theme; return the finished process."""
    folder.mkdir()
    cells = [nbformat.v4.new_markdown_cell("# A chapter\n\nWords."), nbformat.v4.new_code_cell("1 + 1")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "chapter.ipynb")
    settings = {
        "extensions": "myst_nb,launch",
        "root_doc": "chapter",
        "html_theme": "sphinx_book_theme",
        "nb_execution_mode": "off",
        "book_repository": repository,
    }
    options = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "sphinx", "-q", "-C", *options, str(folder), str(folder / "html")]
    path = {"PYTHONPATH": str(ROOT / "book" / "_ext")}
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path}, check=False)


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_buttons_and_the_install_line_follow_the_setting(tmp_path, repository):
    done = build(tmp_path / "book", repository)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "book" / "html" / "chapter.html").read_text(encoding="utf-8")
    wanted = bool(repository)
    assert ("https://mybinder.org/v2/gh/someone/a-book/main" in page) == wanted
    assert ("https://colab.research.google.com/github/someone/a-book/blob/main" in page) == wanted
    assert (f"labsrc @ git+{REPOSITORY}" in page.replace("&#39;", "'")) == wanted
    assert ("launch" in page.partition("article-header-buttons")[2][:4000]) == wanted


def test_an_address_that_is_no_repository_stops_the_build(tmp_path):
    done = build(tmp_path / "book", "someone/a-book")
    assert done.returncode != 0
    assert "book_repository must be https://github.com/OWNER/NAME or empty; got 'someone/a-book'" in done.stderr
