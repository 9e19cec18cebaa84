"""Sphinx extension: the reference of labsrc, written from its docstrings when the book is built.

A page holds one line of its own kind, and one section for each public module stands in its place, so that a new module
needs no entry anywhere:

    <!-- api: labsrc without labsrc.toylm, labsrc.labs -->
"""

import importlib
import pkgutil
import re

import labsrc

LINE = re.compile(r"^<!-- api: (\S+?)(?: without (.+?))? -->$", re.MULTILINE)
SECTION = """## {name}

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
```
"""


def module_names(package, without=()):
    """The names of the public modules of a package, itself first, sorted, those below a name in `without` left out."""
    found = importlib.import_module(package)
    below = pkgutil.walk_packages(found.__path__, f"{package}.") if hasattr(found, "__path__") else ()
    names = [package, *sorted(module.name for module in below)]
    return [name for name in names if is_public(name) and not any(is_below(name, other) for other in without)]


def is_public(name):
    """Whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def is_below(name, other):
    """Whether a dotted name is `other` or lies inside it."""
    return f"{name}.".startswith(f"{other}.")


def write_sections(app, docname, source):
    """Put the sections of the modules where a page asks for them."""

    def sections(match):
        without = [name.strip() for name in (match[2] or "").split(",") if name.strip()]
        return "\n".join(SECTION.format(name=name) for name in module_names(match[1], without))

    source[0], count = LINE.subn(sections, source[0])
    if count:
        app.env.api_pages = getattr(app.env, "api_pages", set()) | {docname}


LITERAL = re.compile(r"(``.+?``|`[^`]+`)")
MARKS = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def as_rst(lines):
    """A docstring's lines as reStructuredText that says the same: names in backticks are code, formulas stay.

    Examples are kept; an indented line that opens a paragraph becomes one of a block of code.
    """
    written, block = [], False
    for line in lines:
        example = line.lstrip().startswith((">>>", "..."))
        if not line.strip():
            block = False
        elif not block and line.startswith(" ") and (not written or not written[-1].strip()):
            written += ["::", ""]
            block = True
        if block or example or (written and written[-1].lstrip().startswith(">>>")):
            written.append(line)
        else:
            written.append(escaped(line.strip()))
    return written


def escaped(line):
    """A line of prose, its code in double backticks and its stars, bars and trailing underscores escaped."""
    parts = LITERAL.split(line)
    return "".join(f"``{part.strip('`')}``" if LITERAL.fullmatch(part) else MARKS.sub(r"\\\1", part) for part in parts)


def rewrite_docstring(app, what, name, found, options, lines):
    """Hand autodoc the docstring as reStructuredText."""
    lines[:] = as_rst(lines)


def pages_to_build_again(app, env, added, changed, removed):
    """The reference, at every build: Sphinx does not see that a module has come or gone."""
    return getattr(env, "api_pages", set()) & env.found_docs


def setup(app):
    """Register with Sphinx."""
    # Before autodoc has a look: to print defaults as they are written it puts text in their place in the functions'
    # signatures, where labsrc's settings read them as numbers when a module of theirs is imported.
    for name in module_names(labsrc.__name__):
        importlib.import_module(name)
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", write_sections)
    app.connect("autodoc-process-docstring", rewrite_docstring)
    app.connect("env-get-outdated", pages_to_build_again)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
