"""Rules for the stored notebooks: what nbval does not look at, and how a chapter's cells are written.

Each rule takes a notebook (a dict, as json reads it) and yields its faults; RULES lists them all.
"""

import ast
import re
from collections.abc import Iterator

LONGEST_DEF = 8  # lines; a longer function belongs in labsrc, where it is tested
MOST_DECIMALS = 10  # more digits than this differ between machines in their last place

# What a stored notebook says of itself: nothing that depends on who ran it last.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = {"tags", "mystnb", "jupyter"}

NBVAL_MARKS = {
    "NBVAL_IGNORE_OUTPUT",
    "NBVAL_SKIP",
    "NBVAL_RAISES_EXCEPTION",
    "NBVAL_CHECK_OUTPUT",
    "PYTEST_VALIDATE_IGNORE_OUTPUT",
    "RAISES_EXCEPTION",
}

UNSTABLE = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "a path of one machine": re.compile(
        r"(?<![\w.:/])/(?:home|root|Users|tmp|usr|opt|work|private|var)/|\b[A-Z]:\\|site-packages"
    ),
    "a timing": re.compile(
        r"(?i)\bwall time|\bCPU times|\bper loop\b|\bit/s\b|\b(?:took|elapsed)\W{0,3}\d|\d\s?(?:ms|µs)\b"
    ),
    "a date and time": re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d"),
}


def text(value: str | list[str]) -> str:
    """Join a field that the notebook format allows to be a list of lines."""
    return value if isinstance(value, str) else "".join(value)


def code_cells(notebook: dict) -> Iterator[tuple[int, dict, str]]:
    """Yield (number, cell, source) of each code cell, numbered as a reader counts cells, from 1."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            yield number, cell, text(cell["source"])


def output_texts(cell: dict) -> Iterator[tuple[str, str]]:
    """Yield (type, text) of each textual output of a code cell; streams have the type 'stream'."""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield "stream", text(output["text"])
        for kind, data in output.get("data", {}).items():
            kind = kind.removeprefix("application/papermill.record/")  # a value glued for use in the prose
            if kind.startswith("text/") or kind == "image/svg+xml":
                yield kind, text(data)


def trees(notebook: dict) -> Iterator[tuple[int, ast.Module]]:
    """Yield (cell number, syntax tree) of each code cell that is plain Python."""
    for number, _, source in code_cells(notebook):
        try:
            yield number, ast.parse(source)
        except SyntaxError:
            continue


def run_once_from_top_to_bottom(notebook: dict) -> Iterator[str]:
    """nbval does not compare a cell without an execution count, so each has one, and they run 1, 2, 3, …"""
    counts = [cell["execution_count"] for _, cell, source in code_cells(notebook) if source.strip()]
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts are {counts}, want 1 to {len(counts)}: run the notebook from top to bottom"


def no_empty_code_cell(notebook: dict) -> Iterator[str]:
    """An empty code cell has nothing to run or compare."""
    yield from (f"cell {number} is empty" for number, _, source in code_cells(notebook) if not source.strip())


def metadata_of_no_machine(notebook: dict) -> Iterator[str]:
    """Kernel python3 and nothing about the last machine; cells carry tags and display options only."""
    if notebook["metadata"] != METADATA:
        yield f"metadata is {notebook['metadata']}, want {METADATA}"
    if (notebook["nbformat"], notebook["nbformat_minor"]) < (4, 5):
        yield "format is older than 4.5, which has no cell ids"
    for number, cell in enumerate(notebook["cells"], start=1):
        if surplus := sorted(cell["metadata"].keys() - CELL_METADATA):
            yield f"cell {number} has metadata {surplus}"


def no_trailing_semicolon(notebook: dict) -> Iterator[str]:
    """nbval runs cells without history, where a trailing ; hides nothing: assign the value instead."""
    for number, _, source in code_cells(notebook):
        if source.rstrip().endswith(";"):
            yield f"cell {number} ends in a semicolon"


def plain_python(notebook: dict) -> Iterator[str]:
    """No magics and no shell lines: what a cell does must be what Python does."""
    for number, _, source in code_cells(notebook):
        try:
            ast.parse(source)
        except SyntaxError as error:
            yield f"cell {number} is not plain Python: line {error.lineno}: {error.msg}"


def no_class_and_no_long_def(notebook: dict) -> Iterator[str]:
    """Chapters stay thin: a class, or a function past a few lines, belongs in labsrc."""
    for number, tree in trees(notebook):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"cell {number} defines the class {node.name}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > LONGEST_DEF:
                    yield f"cell {number}: {node.name} has {lines} lines, at most {LONGEST_DEF}"


def nbval_marks(notebook: dict) -> list[str]:
    """Every comment or tag that tells nbval to look away, one entry each."""
    found = []
    for number, cell, source in code_cells(notebook):
        comments = [line.strip().lstrip("#").strip() for line in source.splitlines() if "#" in line]
        tags = [tag.upper().replace("-", "_") for tag in cell["metadata"].get("tags", [])]
        found += [f"cell {number}: {mark}" for mark in comments + tags if mark in NBVAL_MARKS]
    return found


def no_error_and_no_stderr(notebook: dict) -> Iterator[str]:
    """A stored chapter ran without an error and without a warning."""
    for number, cell, _ in code_cells(notebook):
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"cell {number} stores the error {output['ename']}"
            if output.get("name") == "stderr":
                yield f"cell {number} writes to stderr: {text(output['text'])[:80]!r}"


def outputs_the_same_everywhere(notebook: dict) -> Iterator[str]:
    """No address, path, timing or date, and no number with more digits than machines agree on."""
    for number, cell, _ in code_cells(notebook):
        for kind, content in output_texts(cell):
            for what, pattern in UNSTABLE.items():
                if match := pattern.search(content):
                    yield f"cell {number}: its {kind} output holds {what}: {match.group()!r}"
            if kind in ("stream", "text/plain"):
                for digits in re.findall(rf"\d\.\d{{{MOST_DECIMALS + 1},}}", content):
                    yield f"cell {number} prints {digits}: more than {MOST_DECIMALS} decimals"


def no_stored_widget_view(notebook: dict) -> Iterator[str]:
    """A widget view needs the kernel that made it: stored, it shows an error in place of the picture."""
    for number, cell, _ in code_cells(notebook):
        for output in cell["outputs"]:
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                yield f"cell {number} stores a widget view: write the notebook with `make notebooks`"


def pictures_say_what_they_show(notebook: dict) -> Iterator[str]:
    """Alternative text on every picture, drawn or linked, for whoever cannot see it."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "markdown":
            if re.search(r"!\[\s*\]\(", text(cell["source"])):
                yield f"cell {number} links a picture without alternative text"
            yield from (f"cell {number}: {fault}" for fault in unnamed_pictures(text(cell["source"])))
    for number, cell, _ in code_cells(notebook):
        alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
        for output in cell["outputs"]:
            data = output.get("data", {})
            shown_as_html = "text/html" in data  # which the site and JupyterLab prefer to an image
            if any(kind.startswith("image/") for kind in data) and not shown_as_html and not alt.strip():
                yield f"cell {number} draws a picture without alt in its metadata (mystnb: image: alt)"
            for fault in unnamed_pictures(text(data.get("text/html", ""))):
                yield f"cell {number}: {fault}"


def unnamed_pictures(markup: str) -> Iterator[str]:
    """Every <img> without an alt, and every <svg> that is neither named nor hidden from readers aloud."""
    for tag in re.findall(r"<(?:img|svg)\b[^>]*>", markup):
        named = re.search(r"""\b(?:alt|aria-label|aria-labelledby)\s*=\s*["'][^"']*\w""", tag)
        if not named and not re.search(r"""aria-hidden\s*=\s*["']true""", tag):
            yield f"{tag[:60]} has no alternative text"


RULES = (
    run_once_from_top_to_bottom,
    no_empty_code_cell,
    metadata_of_no_machine,
    no_trailing_semicolon,
    plain_python,
    no_class_and_no_long_def,
    no_error_and_no_stderr,
    outputs_the_same_everywhere,
    no_stored_widget_view,
    pictures_say_what_they_show,
)
