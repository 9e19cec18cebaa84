"""Run notebooks from top to bottom in fresh kernels and store what they print: `python notebooks/run.py [FILE ...]`.

Without a name every notebook here is run. With `--normalise` none is run: only what depends on the machine is dropped. What is stored says nothing of the machine or the moment: metadata is
normalised, timings are left out, and so are widget views, which mean nothing without the kernel that made them.
A notebook in which a cell fails is left as it was.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KEPT_CELL_METADATA = {"tags", "mystnb", "jupyter"}


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook at `path`, run in a fresh kernel and normalised; raise CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    )
    client.execute()
    normalise(notebook)
    return notebook


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Drop, in place, all that depends on who ran the notebook, and when."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        )
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write the notebook whole or not at all."""
    partial = path.with_suffix(".ipynb.partial")
    nbformat.write(notebook, partial)
    os.replace(partial, path)


def main() -> None:
    """Run or normalise the notebooks named on the command line, or all."""
    only_normalise = "--normalise" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--normalise"]
    for path in [Path(name).resolve() for name in names] or sorted(
        HERE.glob("*.ipynb")
    ):
        if only_normalise:
            normalise_file(path)
        else:
            write(run(path), path)
            print(f"ran {path.name}")


def normalise_file(path: Path) -> None:
    """Normalise the notebook at `path`; one that needs nothing is not touched."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    normalise(notebook)
    if nbformat.reads(before, as_version=4) != notebook:
        write(notebook, path)
        print(f"normalised {path.name}")


if __name__ == "__main__":
    main()
