"""Sphinx extension: the first use of a glossary's term on a page leads to its definition, and shows it on hover.

A writer marks nothing: where a chapter says "importance ratio" for the first time, outside headings, code, formulas
and links, the words become a link. The definitions of a page's terms lie in the page, so a tooltip needs no network
and works from disk; the script book/_static/glossary.js shows it.
"""

import hashlib
import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

# A term inside one of these keeps its own meaning, or its own link.
CLOSED = (
    nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw,
    nodes.caption, nodes.strong, nodes.citation, nodes.image, addnodes.desc, addnodes.glossary, addnodes.pending_xref,
)  # fmt: skip
# Pages that explain names themselves, or list what other pages say.
LEFT_ALONE = ("book/api/", "book/glossary", "book/references", "book/index_of")


def definitions(env):
    """The glossary: each term in lower case, its place and its definition in words."""
    return vars(env).setdefault("glossary_definitions", {})


def collect(app, doctree):
    """Remember the terms that a page defines."""
    for item in doctree.findall(nodes.definition_list_item):
        if not isinstance(item.parent.parent, addnodes.glossary):
            continue
        words = " ".join(item.next_node(nodes.definition).astext().split())
        for term in item.findall(nodes.term):
            name = term.astext()
            definitions(app.env)[name.lower()] = (app.env.docname, term["ids"][0], name, words)


def forget(app, env, docname):
    """Drop the terms of a page that is read anew, or gone."""
    for name in [name for name, (page, *_) in definitions(env).items() if page == docname]:
        del definitions(env)[name]


def pages_to_write_again(app, env):
    """All pages, where the glossary has changed."""
    mark = hashlib.sha256(repr(sorted(definitions(env).items())).encode()).hexdigest()
    before, env.glossary_mark = getattr(env, "glossary_mark", ""), mark
    return [] if mark == before else sorted(env.found_docs)


def pattern_of(names):
    """Any of the terms as whole words, the longest first, with or without an s."""
    longest = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})(s?)(?![\w-])", re.IGNORECASE)


def link_first_uses(app, doctree, docname):
    """Link the first use of each term on a page."""
    known = definitions(app.env)
    if not known or docname.startswith(LEFT_ALONE):
        return
    left, pattern = set(known), pattern_of(known)
    for text in [text for text in doctree.findall(nodes.Text) if is_open(text)]:
        for match in pattern.finditer(text.astext()):
            if match[1].lower() in left:
                # One link for each piece of text keeps the prose readable; the next use may be linked instead.
                left.discard(match[1].lower())
                text.parent.replace(text, pieces(app, docname, text.astext(), match, known))
                break


def is_open(text):
    """Whether words stand in running prose."""
    node = text.parent
    if not isinstance(node, nodes.paragraph | nodes.emphasis):
        return False
    while node is not None:
        if isinstance(node, CLOSED) or (
            isinstance(node, nodes.Element) and node.get("nb_element", "").startswith("cell_code")
        ):
            return False
        node = node.parent
    return True


def pieces(app, docname, words, match, known):
    """A text, as what stands before the term, its link, and what stands behind."""
    page, place, *_ = known[match[1].lower()]
    address = f"{app.builder.get_relative_uri(docname, page)}#{place}"
    link = nodes.reference("", match[0], internal=True, refuri=address, classes=["glossary-link"])
    return [nodes.Text(words[: match.start()]), link, nodes.Text(words[match.end() :])]


PLACE = re.compile(r'href="[^"]*#(term-[^"]+)"')


def carry_definitions(app, pagename, templatename, context, doctree):
    """Put the definitions of the terms that a page links to at its end, for the script."""
    body = context.get("body", "")
    used = set(PLACE.findall(body))
    if not used or pagename.startswith("book/glossary"):
        return
    kept = [
        f'<div data-term="{escape(place)}">{escape(words)}</div>'
        for _, place, _, words in definitions(app.env).values()
        if place in used
    ]
    context["body"] = f'{body}<template id="glossary-definitions">{"".join(kept)}</template>'


def add_script(app):
    """Put the tooltip's script on every page."""
    if (Path(app.srcdir) / "book" / "_static" / "glossary.js").is_file():
        app.add_js_file("glossary.js", defer="defer")


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", add_script)
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("env-updated", pages_to_write_again)
    app.connect("doctree-resolved", link_first_uses)
    app.connect("html-page-context", carry_definitions)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
