"""Sphinx extension: lists of the book's labs, exercises, theorems and wrong beliefs, collected from the pages.

    ```{book-index} exercises
    ```

Nothing is typed twice: an exercise is where a cell checks it, a lab where a cell calls it, a theorem where it is
stated, a wrong belief where a warning stands under the heading "What people get wrong". Each gets a place of its own
to be linked to.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from labsrc.labs import LABS
from labsrc.labs.exercises import exercises

KINDS = ("labs", "exercises", "theorems", "pitfalls")
PITFALLS = "What people get wrong"
FORMS = {"Number": "a number", "Choice": "a choice", "Code": "code"}
CALL = re.compile(r"\blabs\.(\w+)\(")
CHECK = re.compile(r"\bexercises\.check\(\s*[\"']([\w-]+)[\"']")
STATED = ("theorem", "lemma", "proposition", "corollary")
NUMBERED = re.compile(r"^\d+\w*\.$")


@dataclass(frozen=True)
class Entry:
    """One line of a list: where it leads, and the nodes it says."""

    anchor: str
    words: tuple


class BookIndex(nodes.General, nodes.Element):
    """Stands for a list until all pages are read."""


class BookIndexDirective(SphinxDirective):
    """The list of one kind of thing."""

    required_arguments = 1
    option_spec: ClassVar = {}

    def run(self):
        """A placeholder, filled when the page is written."""
        kind = self.arguments[0]
        if kind not in KINDS:
            raise self.error(f"no index of {kind!r}; there are {', '.join(KINDS)}")
        indexes(self.env)[self.env.docname] = (*indexes(self.env).get(self.env.docname, ()), kind)
        return [BookIndex(kind=kind)]


def indexes(env):
    """The pages that hold a list, and of which kinds."""
    return vars(env).setdefault("book_index_pages", {})


def entries(env):
    """What was found: page, kind, entries."""
    return vars(env).setdefault("book_index_entries", {})


def collect(app, doctree):
    """Find what a page has, once it is read, and give each thing its place."""
    found = {
        "labs": labs_of(doctree),
        "exercises": exercises_of(doctree),
        "theorems": theorems_of(doctree),
        "pitfalls": pitfalls_of(doctree),
    }
    entries(app.env)[app.env.docname] = found


def code_cells(doctree):
    """Every code cell of a notebook, with its source."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            sources = [c for c in cell.children if isinstance(c, nodes.Element) and "cell_input" in c["classes"]]
            yield cell, "\n".join(source.astext() for source in sources)


def placed(node, anchor):
    """Give a node its place; return the place's name."""
    if anchor not in node["ids"]:
        node["ids"].append(anchor)
    return anchor


def labs_of(doctree):
    """The labs a page shows: called in a cell, or put there by the directive."""
    found = {}
    for cell, source in code_cells(doctree):
        for name in CALL.findall(source):
            if name in LABS and name not in found:
                found[name] = placed(cell, f"lab-{name}")
    for raw in doctree.findall(nodes.raw):
        shown = re.match(r'<align-lab[^>]*data-name="(\w+)"', raw.astext())
        if shown and not in_cell(raw):
            found.setdefault(shown[1], "")
    return [
        Entry(anchor, (nodes.strong("", LABS[name].title), nodes.Text(f": {LABS[name].lead}")))
        for name, anchor in found.items()
    ]


def in_cell(node):
    """Whether a node is part of a cell's output."""
    while node is not None:
        if isinstance(node, nodes.Element) and node.get("nb_element"):
            return True
        node = node.parent
    return False


def exercises_of(doctree):
    """The exercises a page asks: the numbered question that stands before the first cell that checks it."""
    table, found = exercises(), {}
    for cell, source in code_cells(doctree):
        for key in CHECK.findall(source):
            if key in table and key not in found:
                words = (nodes.literal(key, key), nodes.Text(f" ({FORMS[type(table[key]).__name__]}): "))
                found[key] = Entry(placed(cell, f"exercise-{key}"), words + question_before(cell))
    return list(found.values())


def question_before(cell):
    """The words of the last numbered question before a cell, without its number."""
    siblings = cell.parent.children
    for node in reversed(siblings[: siblings.index(cell)]):
        if isinstance(node, nodes.paragraph):
            # Markdown leaves an empty text before what begins with bold type.
            words = [child for child in node.children if child.astext()]
            if words and isinstance(words[0], nodes.strong) and NUMBERED.match(words[0].astext()):
                return plain(words[1:])
    return ()


def theorems_of(doctree):
    """The theorems, lemmas and the like that a page states, by their titles."""
    return [
        Entry(node["ids"][0], (nodes.Text(node["title"].strip().removeprefix("(").removesuffix(")")),))
        for node in doctree.findall(nodes.Element)
        if node.get("realtype") in STATED and node.get("title") and node["ids"]
    ]


def pitfalls_of(doctree):
    """The wrong beliefs: titles of the warnings under that heading."""
    found = []
    for section in doctree.findall(nodes.section):
        if title_of(section) != PITFALLS:
            continue
        for box in section.findall(nodes.admonition):
            if "warning" in box["classes"]:
                heading = box.next_node(nodes.title)
                anchor = placed(box, f"pitfall-{nodes.make_id(heading.astext())[:60].strip('-')}")
                found.append(Entry(anchor, plain(heading.children)))
    return found


def title_of(section):
    """A section's heading in words; an automatic one has none."""
    return next((child.astext() for child in section.children if isinstance(child, nodes.title)), "")


def plain(children):
    """Copies of inline nodes that can stand on any page: a reference is left its words."""
    copies = []
    for child in children:
        if isinstance(child, nodes.Text | nodes.math | nodes.literal):
            copies.append(child.deepcopy())
        elif isinstance(child, nodes.emphasis | nodes.strong):
            copies.append(type(child)("", "", *plain(child.children)))
        else:
            copies.append(nodes.Text(child.astext()))
    return tuple(copies)


def forget(app, env, docname):
    """Drop what a page had: it is read anew, or gone."""
    entries(env).pop(docname, None)
    indexes(env).pop(docname, None)


def pages_to_write_again(app, env):
    """The pages with lists, after any page was read; they may show formulas that they do not contain themselves."""
    for docname in indexes(env):
        env.get_domain("math").data["has_equations"][docname] = True
    return list(indexes(env))


def in_order(env):
    """All pages in the order of the contents."""
    seen, waiting = [], [env.config.root_doc]
    while waiting:
        docname = waiting.pop(0)
        if docname not in seen:
            seen.append(docname)
            waiting = env.toctree_includes.get(docname, []) + waiting
    return seen


def fill(app, doctree, docname):
    """Put the lists where their placeholders stand."""
    for placeholder in list(doctree.findall(BookIndex)):
        parts = []
        for page in in_order(app.env):
            found = entries(app.env).get(page, {}).get(placeholder["kind"], [])
            if found:
                parts += [heading(app, docname, page), bullets(app, docname, page, found)]
        placeholder.replace_self(parts)


def heading(app, docname, page):
    """The name of the page that the entries below are from, as a link to it."""
    name = nodes.strong("", "", *plain(app.env.titles[page].children))
    return nodes.paragraph("", "", link(app, docname, page, "", name))


def bullets(app, docname, page, found):
    """The entries of one page. A name leads an entry's words and is the link; where there is none, all words are."""
    items = []
    for entry in found:
        words = [word.deepcopy() for word in entry.words]
        linked = words[:1] if isinstance(words[0], nodes.literal | nodes.strong) else words
        line = [link(app, docname, page, entry.anchor, *linked), *words[len(linked) :]]
        items.append(nodes.list_item("", nodes.paragraph("", "", *line)))
    return nodes.bullet_list("", *items)


def link(app, docname, page, anchor, *words):
    """A link to a place in a page."""
    address = app.builder.get_relative_uri(docname, page) + (f"#{anchor}" if anchor else "")
    return nodes.reference("", "", *words, internal=True, refuri=address)


def setup(app):
    """Register with Sphinx."""
    app.add_node(BookIndex)
    app.add_directive("book-index", BookIndexDirective)
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("env-updated", pages_to_write_again)
    app.connect("doctree-resolved", fill)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
