"""Sphinx extension: the labs' style sheet on every page, and a directive that puts a live lab into Markdown.

    ```{lab} tilt
    :beta: 0.3
    :rewards: -0.5, 0.7, 1.1
    ```

Options are settings of the lab, those not named start at their defaults; `preset` names one of its presets. A setting
that the lab refuses fails the build. Where the output is not HTML, the lab's text stands in its place.
"""

import hashlib
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

import labsrc
from labsrc.labs import LABS
from labsrc.labs.style import style_sheet

SETTINGS = {key for lab in LABS.values() for key in lab.state()}


class LabDirective(SphinxDirective):
    """A lab by its name, with settings as options."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar = {name: directives.unchanged for name in sorted(SETTINGS | {"preset"})}

    def run(self):
        """The lab as HTML, or its text for other builders."""
        name = self.arguments[0]
        if name not in LABS:
            raise self.error(f"no lab is called {name!r}; there are {', '.join(LABS)}")
        try:
            view = LABS[name](**settings(LABS[name], dict(self.options)))
        except ValueError as error:
            raise self.error(f"lab {name}: {error}") from error
        picture = nodes.raw("", view.html(), format="html")
        words = nodes.literal_block(repr(view), repr(view))
        return [picture] if self.env.app.builder.format == "html" else [words]


def settings(lab, options):
    """The options as settings: lists are written with commas, everything else as JSON or plain text."""
    state = {}
    if "preset" in options:
        chosen = options.pop("preset")
        found = [preset.state for preset in lab.presets if preset.label == chosen]
        if not found:
            raise ValueError(f"preset must be one of {[preset.label for preset in lab.presets]}; got {chosen!r}")
        state.update(found[0])
    defaults = lab.state()
    for key, text in options.items():
        state[key] = read_setting(text, defaults.get(key))
    return state


def read_setting(text, default):
    """A setting's text as JSON; lists may leave out their brackets, texts their quotation marks."""
    if isinstance(default, str):
        return text.strip()
    if isinstance(default, list) and not text.strip().startswith("["):
        text = f"[{text}]"
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def write_style_sheet(app):
    """Write the labs' style sheet, which labsrc holds, where the site's other static files come from."""
    folder = Path(app.doctreedir) / "labs-static"
    (folder / "labs").mkdir(parents=True, exist_ok=True)
    (folder / "labs" / "labs.css").write_text(style_sheet(), encoding="utf-8")
    app.config.html_static_path.append(str(folder))
    app.add_css_file("labs/labs.css")


def pages_to_build_again(app, env, added, changed, removed):
    """All pages where the labs have changed since the last build: Sphinx sees neither the package nor the scripts."""
    folders = (Path(labsrc.__file__).parent, Path(app.srcdir) / "book" / "_static" / "labs")
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".css", ".js")]
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    before, env.labs_mark = getattr(env, "labs_mark", mark), mark
    return [] if mark == before else env.found_docs


def setup(app):
    """Register with Sphinx."""
    app.add_directive("lab", LabDirective)
    app.connect("env-get-outdated", pages_to_build_again)
    app.connect("builder-inited", write_style_sheet)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
