"""Sphinx extension: buttons that open a chapter on Binder or Colab, from one setting.

`book_repository` in _config.yml is the address of the repository, https://github.com/OWNER/NAME. While it is empty no
page has a button, and none names another host. Colab opens a notebook without the rest of the repository: the line
that installs labsrc there stands at the top of each chapter.
"""

import re

from docutils import nodes
from sphinx.errors import ConfigError

ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+")
INSTALL = "%pip install -q myst-nb 'labsrc @ git+{repository}'"


def read_setting(app, config):
    """Hand the theme the repository, and the services that open it."""
    repository = config.book_repository
    if not repository:
        return
    if not ADDRESS.fullmatch(repository):
        raise ConfigError(f"book_repository must be https://github.com/OWNER/NAME or empty; got {repository!r}")
    config.html_theme_options |= {
        "repository_url": repository,
        "repository_branch": config.book_branch,
        "path_to_docs": ".",
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "notebook_interface": "jupyterlab",
        },
    }


def add_install_line(app, doctree):
    """Say at the top of a notebook what to run first on Colab."""
    if not app.config.book_repository or not app.env.doc2path(app.env.docname).endswith(".ipynb"):
        return
    title = doctree.next_node(nodes.title)
    line = INSTALL.format(repository=app.config.book_repository)
    words = nodes.paragraph("", "On Colab, put this line into a cell at the top and run it first:")
    box = nodes.admonition("", nodes.title("", "Running this chapter"), words, nodes.literal_block(line, line))
    box["classes"] += ["note", "dropdown"]
    title.parent.insert(title.parent.index(title) + 1, box)


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("book_repository", "", "env", str)
    app.add_config_value("book_branch", "main", "env", str)
    app.connect("config-inited", read_setting)
    app.connect("doctree-read", add_install_line)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
