"""The page's twins against Python: what they compute, how they write numbers, what they draw. In a real browser."""

import importlib
import json
import math
import random

import pytest
from labs_demo import SCRIPTS, TWIN, demo, edge_states, random_states

from labsrc import labs
from labsrc.bandit import BanditSettings, train_group_bandits
from labsrc.labs import draw, formats, scales, static
from labsrc.labs.cells import cell_problem
from labsrc.labs.controls import Slider, Table

pytestmark = pytest.mark.browser

ALL = [*labs.LABS.values(), demo]
every_lab = pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
STATES = 400

# The two sides add in different orders and have exponentials of their own, each right to about one unit in the
# sixteenth digit. A divergence near zero is a difference of terms of order one, so it cannot be asked for more than
# 1e-12 in absolute terms; everything else must agree to nine digits.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context()
    page = context.new_page()
    for path in SCRIPTS:
        page.add_script_tag(path=path)
    page.add_script_tag(content=TWIN)
    yield page
    context.close()


def test_every_lab_has_a_twin_and_every_twin_a_lab(page):
    assert set(page.evaluate("() => Object.keys(alignLabs.twins)")) == {lab.name for lab in ALL}


COMPUTE = """([name, states]) => states.map((state) => {
  try { return { result: alignLabs.twins[name](state) }; } catch (error) { return { refused: error.message }; }
})"""


def in_python(lab, state):
    try:
        return {"result": lab.run(lab.compute, state)}
    except ValueError as error:
        return {"refused": str(error)}


def differences(ours, theirs, where=""):
    """Every place where the two results differ, with both values."""
    if isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return [f"{where}: keys {sorted(ours)} against {sorted(theirs)}"]
        return [d for key in ours for d in differences(ours[key], theirs[key], f"{where}.{key}")]
    if isinstance(ours, list):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} entries against {len(theirs)}"]
        return [d for i, pair in enumerate(zip(ours, theirs, strict=True)) for d in differences(*pair, f"{where}[{i}]")]
    if isinstance(ours, bool | str) or isinstance(theirs, bool | str | None):
        same = ours == theirs and type(ours) is type(theirs)
    elif math.isfinite(ours) and math.isfinite(theirs):
        same = abs(ours - theirs) <= max(RELATIVE * max(abs(ours), abs(theirs)), ABSOLUTE)
    else:
        same = str(float(ours)) == str(float(theirs))
    return [] if same else [f"{where}: {ours!r} against {theirs!r}"]


TOGETHER = 8


@pytest.fixture
def trained_together(monkeypatch):
    """Train the bandits of these states side by side, as `labsrc.bandit` can, and let the lab take its runs from there.

    In each block of random states all take group size, clip and updates from the first, the settings that runs must
    share to be rows of one tensor. Returns the states.
    """

    def train(random_ones, edges):
        shared = ("group_size", "clip", "inner_updates")
        blocks = [random_ones[start : start + TOGETHER] for start in range(0, len(random_ones), TOGETHER)]
        states = [{**one, **{key: block[0][key] for key in shared}} for block in blocks for one in block] + edges
        history = train_group_bandits([BanditSettings(**state) for state in states])
        runs = {str(state): run for state, run in zip(states, history, strict=True)}
        module = importlib.import_module("labsrc.labs.bandit")
        monkeypatch.setattr(module, "_trained", lambda **state: runs[str({**state, "rewards": [*state["rewards"]]})])
        return states

    return train


@every_lab
def test_the_page_computes_what_python_computes(page, lab, trained_together):
    states, edges = random_states(lab, STATES), edge_states(lab)
    states = trained_together(states, edges) if lab is labs.bandit else states + edges
    states.sort(key=str)  # a lab that keeps its last runs then meets each run's states one after another
    theirs = page.evaluate(COMPUTE, [lab.name, states])
    wrong = []
    for state, there in zip(states, theirs, strict=True):
        if found := differences(in_python(lab, state), there):
            wrong.append((state, found[:3]))
    assert not wrong, wrong[:3]
    assert sum("result" in there for there in theirs) >= 300


def test_a_twin_that_differs_in_the_ninth_digit_would_be_seen():
    ours = {"p": [0.25, 0.75], "ok": True}
    assert differences(ours, {"p": [0.25, 0.75 * (1 + 1e-10)], "ok": True}) == []
    assert differences(ours, {"p": [0.25, 0.75 * (1 + 1e-8)], "ok": True})
    assert differences(ours, {"p": [0.25], "ok": True}) and differences(ours, {"p": [0.25, 0.75]})
    assert differences(ours, {"p": [0.25, None], "ok": True}) and differences(ours, {"p": [0.25, 0.75], "ok": 1})
    assert differences({"a": 1e-14}, {"a": 0.0}) == [] and differences({"a": math.inf}, {"a": 1e300})


def test_the_page_writes_numbers_as_python_does(page):
    draws = random.Random(5)
    awkward = [0.0, -0.0, 0.5, 0.125, 0.375, 2.5, -2.5, 1e-12, 9.9999e-13, 999999.5, 1e6, 1e15, 5e-324, 1.7e308]
    awkward += [math.inf, -math.inf, math.nan, 0.0005, 0.00049999, 0.99995, 9.995, 99.95, 1e21, 123456789.0]
    wild = [draws.choice([-1, 1]) * draws.random() * 10.0 ** draws.randint(-18, 18) for _ in range(1000)]
    ties = [draws.randint(0, 10**6) / 2 ** draws.randint(1, 12) for _ in range(1000)]
    values = awkward + wild + ties
    for fmt in (".0f", ".1f", ".3f", "~.3f", "+.2f", ".1g", ".3g", "~.6g", "d", "+d", ".1%", ".0%"):
        theirs = page.evaluate("([values, fmt]) => values.map((v) => alignLabs.formatValue(v, fmt))", [values, fmt])
        ours = [formats.format_value(value, fmt) for value in values]
        assert [(v, o, t) for v, o, t in zip(values, ours, theirs, strict=True) if o != t] == [], fmt
    assert page.evaluate("() => [alignLabs.formatValue(null, 'd'), alignLabs.letter(3)]") == ["–", "d"]


def test_the_page_reads_what_is_typed_as_python_does(page):
    typed = ["1", " -2.5 ", "−3", "+.5", "5.", "1e3", "1E-3", "", "-", ".", "1,5", "0x10", "Infinity", "NaN", "1e", "٣"]
    theirs = page.evaluate("(typed) => typed.map(alignLabs.parseNumber)", typed)
    assert theirs == [formats.parse_number(text) for text in typed]


def test_the_page_says_of_a_cell_what_python_says(page):
    sliders = [Slider("a", "a", "a", 1, -1, 1000, integer=True), Slider("a", "a", "a", 0.5, 1e-5, 0.9)]
    for slider in sliders:
        bounds = {"minimum": slider.minimum, "maximum": slider.maximum, "integer": slider.integer}
        values = [None, 0.5, 1.0, 0.0, -1.0, 1000.0, 1000.5, 2e9]
        script = "([values, bounds]) => values.map((v) => alignLabs.states.cellProblem(v, bounds))"
        assert page.evaluate(script, [values, bounds]) == [cell_problem(value, slider) for value in values]


def test_the_page_has_the_same_scales(page):
    draws = random.Random(11)
    for _ in range(300):
        values = [draws.gauss(0, 1) * 10.0 ** draws.randint(-6, 6) for _ in range(draws.randint(1, 5))]
        around_zero = draws.random() < 0.5
        low, high = scales.round_domain(values, around_zero=around_zero)
        theirs = page.evaluate(
            """([values, aroundZero]) => {
              const [low, high] = alignLabs.roundDomain(values, aroundZero);
              return [low, high, alignLabs.roundTicks(low, high), alignLabs.tickFormat(low, high, false)];
            }""",
            [values, around_zero],
        )
        assert theirs == [low, high, scales.round_ticks(low, high), scales.tick_format(low, high, log=False)]


DRAW = """([lab, pairs]) => pairs.map(([state, result]) => ({
  panels: (lab.panels || []).map((panel) => alignLabs.toHtml(alignLabs.draw(panel, state, result))),
  rows: lab.controls.filter((control) => control.bars)
    .map((control) => alignLabs.barRows(control.bars, result).map(alignLabs.toHtml)),
  legends: lab.controls.filter((c) => c.bars).map((control) => alignLabs.toHtml(alignLabs.legend(control.bars.series))),
  words: alignLabs.sentence(lab.sentence, state, result),
}))"""


@every_lab
def test_the_page_draws_what_python_draws_to_the_character(page, lab):
    states = random_states(lab, 60, seed=1) + edge_states(lab)[:60]
    pairs = [(state, done["result"]) for state in states if "result" in (done := in_python(lab, state))]
    theirs = page.evaluate(DRAW, [lab.describe(), pairs])
    tables = [control for control in lab.controls if isinstance(control, Table) and control.bars]
    for (state, result), there in zip(pairs, theirs, strict=True):
        assert there["panels"] == [draw.draw(panel, state, result) for panel in lab.panels]
        assert there["rows"] == [draw.bar_rows(table.bars, result) for table in tables]
        assert there["legends"] == [draw.legend(table.bars.series) for table in tables]
        assert there["words"] == draw.sentence(lab.sentence, state, result)
    assert len(pairs) >= 60


@every_lab
def test_a_drawing_brought_up_to_date_is_the_drawing_made_afresh(page, lab):
    states = random_states(lab, 25, seed=2)
    pairs = [(state, done["result"]) for state in states if "result" in (done := in_python(lab, state))]
    wrong = page.evaluate(
        """([lab, pairs]) => {
          const place = new alignLabs.Place(), home = document.createElement("div"), wrong = [];
          pairs.forEach(([state, result], index) => {
            const tree = alignLabs.h("div", {}, lab.panels.map((panel) => alignLabs.draw(panel, state, result)));
            const drawn = place.show(tree);
            if (!drawn.parentNode) home.append(drawn);
            if (home.innerHTML !== alignLabs.build(alignLabs.h("div", {}, tree)).innerHTML) wrong.push(index);
          });
          return wrong;
        }""",
        [lab.describe(), pairs],
    )
    assert wrong == []


@every_lab
def test_a_state_survives_the_way_through_the_address(page, lab):
    states = random_states(lab, 100, seed=4)
    back = page.evaluate(
        """([lab, states, start]) => states.map((state) => {
          const hash = alignLabs.states.write(lab.name, state);
          return [hash, alignLabs.states.read(hash, lab.name, lab.controls, start)];
        })""",
        [lab.describe(), states, lab.state()],
    )
    for state, (address, found) in zip(states, back, strict=True):
        assert found == {"state": json.loads(static.to_json(state))}, address
        assert " " not in address and '"' not in address


ADDRESSES = [
    ("#lab=tilt&beta=0.5", {"beta": 0.5}),
    ("#lab=tilt&rewards=1,2&weights=1,1", {"rewards": [1, 2], "weights": [1, 1]}),
    ("#lab=tilt&beta=%30.5&unknown=1", {"beta": 0.5}),
    ("#lab=tilt", {}),
    ("#lab=tilt&beta=0", "problem"),
    ("#lab=tilt&beta=abc", "problem"),
    ("#lab=tilt&rewards=1,2", "problem"),
    ("#lab=tilt&rewards=&weights=", "problem"),
    ("#lab=tilt&rewards=1,,3", "problem"),
    ("#lab=tilt&weights=1,-1,1", "problem"),
    ("#lab=other&beta=0.5", None),
    ("#section", None),
    ("", None),
]


@pytest.mark.parametrize(("address", "meaning"), ADDRESSES)
def test_an_address_is_read_or_refused(page, address, meaning):
    lab = labs.tilt
    script = "([hash, lab, start]) => alignLabs.states.read(hash, lab.name, lab.controls, start)"
    found = page.evaluate(script, [address, lab.describe(), lab.state()])
    if meaning == "problem":
        assert found.keys() == {"problem"} and found["problem"]
    elif meaning is None:
        assert found is None
    else:
        assert found == {"state": {**lab.state(), **meaning}}
