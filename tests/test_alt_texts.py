"""Alternative texts are typed into a cell's metadata; a number in one must stand in that cell's output or source.

So it cannot drift away from the figure: a cell that draws something else prints something else.
"""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("0*_*.ipynb"))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def unsupported(cell) -> list[str]:
    """Decimal numbers of the alternative text that no number printed or written in the cell rounds to."""
    alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
    texts = ["".join(cell["source"])]
    for output in cell["outputs"]:
        texts += ["".join(output.get("text", "")), "".join(output.get("data", {}).get("text/plain", ""))]
    known = [float(number) for number in NUMBER.findall(" ".join(texts))]
    missing = []
    for number in NUMBER.findall(alt):
        decimals = len(number.partition(".")[2])
        # Half a unit of the last digit, and a hair for what is printed rounded itself.
        near = 0.51 * 10.0**-decimals
        if decimals and not any(abs(float(number) - value) <= near for value in known):
            missing.append(number)
    return missing


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_decimal_number_in_an_alternative_text_is_in_its_cell(path):
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [(cell["id"], missing) for cell in cells if (missing := unsupported(cell))] == []


def test_a_number_that_is_nowhere_in_the_cell_is_found():
    def cell(alt, source, text):
        return {
            "metadata": {"mystnb": {"image": {"alt": alt}}},
            "source": [source],
            "outputs": [{"output_type": "stream", "text": [text]}],
        }

    assert unsupported(cell("It ends at 0.99.", "draw(0.25)", "0.9871")) == []
    assert unsupported(cell("It ends at 0.99, from 0.25.", "draw(0.25)", "0.984")) == ["0.99"]
