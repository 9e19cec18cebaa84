"""Sphinx extension: what the built site needs to stand on its own, served or from disk, and to be read by everybody."""

import html
from pathlib import Path

# labs/NAME_runs.js holds what the lab NAME replays.
RECORDING = "_runs"
# Sphinx puts scripts on a page by priority: 500 where none is given, as for MathJax.
PARTS, WAKING, BEFORE_MATHS = 400, 450, 460

FRONT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="0; url={page}">
</head>
<body><p><a href="{page}">{title}</a></p></body>
</html>
"""


def write_front_page(app, error):
    """Write index.html, which leads on to the book's first page.

    The table of contents' own fallback has no language, no title and no link to follow.
    """
    if error is None and app.builder.format == "html":
        page = f"{app.config.root_doc}.html"
        text = FRONT.format(title=html.escape(app.config.html_title), page=page)
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def show_title_beside_logo(app, config):
    """Give the theme the book's title, which it drops where there is a logo."""
    config.html_theme_options.setdefault("logo", {}).setdefault("text", config.html_title)


def add_lab_files(app):
    """Put the style sheets and scripts of book/_static/labs on every page.

    The script that wakes the labs comes last of them, and before MathJax: a lab that finds something missing waits for
    the page's last script.
    """
    static = Path(app.srcdir) / "book" / "_static"
    for path in sorted((static / "labs").glob("*.css")):
        app.add_css_file(path.relative_to(static).as_posix())
    for path in sorted((static / "labs").glob("*.js")):
        if not path.stem.endswith(RECORDING):
            # Deferred: run after the page is parsed, in this order; a classic script, which file:// allows.
            priority = WAKING if path.stem == "element" else PARTS
            app.add_js_file(path.relative_to(static).as_posix(), priority=priority, defer="defer")


def add_recordings(app, pagename, templatename, context, doctree):
    """Put a lab's recorded runs, the largest of the scripts, on the pages that show the lab, and on no other."""
    for path in sorted((Path(app.srcdir) / "book" / "_static" / "labs").glob(f"*{RECORDING}.js")):
        if f'data-name="{path.stem.removesuffix(RECORDING)}"' in context.get("body", ""):
            app.add_js_file(f"labs/{path.name}", priority=PARTS, defer="defer")


def mend_roles(app, pagename, templatename, context, doctree):
    """Give the entries of the bibliography the role of list items: docutils' own for them is no longer in use."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def add_scripts(app):
    """Put on every page what lets the keyboard reach what scrolls sideways, and what paces MathJax."""
    app.add_js_file("scroll_focus.js", defer="defer")
    app.add_js_file("maths_in_steps.js", priority=BEFORE_MATHS, defer="defer")


def setup(app):
    """Register with Sphinx."""
    app.connect("config-inited", show_title_beside_logo)
    app.connect("builder-inited", add_lab_files)
    app.connect("builder-inited", add_scripts)
    app.connect("html-page-context", mend_roles)
    app.connect("html-page-context", add_recordings)
    # Before sphinx_external_toc's handler, which writes its fallback only where there is no index.html.
    app.connect("build-finished", write_front_page, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
