"""A lab without a browser: its states and refusals, what a notebook stores, and its widgets driven from Python."""

import inspect
import itertools
import json
import math
import re
from functools import partial
from html.parser import HTMLParser

import ipywidgets
import numpy as np
import pytest
import torch
from labs_demo import demo, edge_states, random_states
from test_labs_parity import differences
from tolerances import RTOL

from labsrc import closed_form, kl, labs
from labsrc.labs import panels, static
from labsrc.labs.controls import Choice, Column, Matrix, Slider, Table
from labsrc.labs.lab import Lab
from labsrc.labs.palette import LIGHT
from labsrc.labs.style import style_sheet
from labsrc.labs.view import WIDGET_VIEW

ALL = [*labs.LABS.values(), demo]
every_lab = pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)


# ---------------------------------------------------------------- tilt's numbers


def test_tilt_gives_the_worked_case():
    result = labs.tilt().result
    assert result["p"] == pytest.approx([0.020805863, 0.230603537, 0.748590599], abs=1e-9)
    # log Z by hand: log(0.2·e^(−0.5/0.6) + 0.3·e^(0.7/0.6) + 0.5·e^(1.1/0.6)).
    log_z = math.log(0.2 * math.exp(-0.5 / 0.6) + 0.3 * math.exp(0.7 / 0.6) + 0.5 * math.exp(1.1 / 0.6))
    assert result["log_partition"] == pytest.approx(log_z, rel=RTOL)
    assert result["objective"] == pytest.approx(0.6 * log_z, rel=RTOL)
    assert result["expected_reward_ref"] == pytest.approx(0.66, rel=RTOL)


def test_tilt_divides_the_weights_by_their_sum_and_keeps_what_has_none_at_zero():
    result = labs.tilt(rewards=[0.0, 1.0, 9.0], weights=[2, 6, 0]).result
    assert result["q"] == [0.25, 0.75, 0.0]
    assert result["p"][2] == 0.0 and result["unreachable"]


@pytest.mark.parametrize("weights", [(0.2, 0.3, 0.5), (1.0, 0.0, 3.0)])
def test_tilts_frontier_runs_from_the_reference_to_the_best_supported_action(weights):
    result = labs.tilt(weights=weights).result
    distances, rewards = result["frontier_kl"], result["frontier_reward"]
    assert distances[-1] == pytest.approx(0.0, abs=1e-4) and rewards[-1] == pytest.approx(
        result["expected_reward_ref"], abs=1e-2
    )
    assert rewards[0] == pytest.approx(1.1, abs=1e-6)
    assert distances[0] == pytest.approx(-math.log(result["q"][2]), abs=1e-6)
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(distances))
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(rewards))


def test_tilts_dashed_line_touches_the_frontier_from_above():
    result = labs.tilt(beta=0.3).result
    worth = [r - 0.3 * k for k, r in zip(result["frontier_kl"], result["frontier_reward"], strict=True)]
    assert max(worth) <= result["objective"] + 1e-12
    assert max(worth) == pytest.approx(result["objective"], abs=2e-3)
    assert result["worth_reward"][0] == result["objective"]
    assert result["worth_reward"][1] - result["worth_reward"][0] == pytest.approx(0.3 * 10.0, rel=RTOL)


def test_a_policy_of_the_readers_own_is_measured_and_never_beats_the_optimum():
    view = labs.tilt(compute=partial(labs.tilt.compute, policy=lambda q, rewards, *, beta: [0.1, 0.1, 0.8]))
    result = view.result
    assert result["kl"] == pytest.approx(kl.kl_divergence([0.1, 0.1, 0.8], [0.2, 0.3, 0.5]).item(), rel=RTOL)
    assert result["objective"] < result["beta_log_partition"]
    assert view.result["p"] == [0.1, 0.1, 0.8]


def test_equal_rewards_move_nothing():
    result = labs.tilt(rewards=[2.0, 2.0, 2.0]).result
    assert result["flat"] and result["p"] == pytest.approx(result["q"], rel=RTOL)


# ---------------------------------------------------------------- states and refusals


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"beta": 0.0}, r"beta must be from 0.01 to 100; got 0.0"),
        ({"beta": math.nan}, r"beta must be a number; got nan"),
        ({"beta": True}, r"beta must be a number; got True"),
        ({"beta": "1"}, r"beta must be a number; got '1'"),
        ({"rewards": [1.0]}, r"rewards must hold 2 to 8 entries, one number for each action; got 1"),
        ({"rewards": [0.0] * 9}, r"rewards must hold 2 to 8 entries"),
        ({"rewards": [1.0, 2.0]}, r"rewards and weights must have one entry for each action; got lengths"),
        ({"rewards": [1.0, math.inf, 0.0]}, r"rewards\[1\] must be a number; got inf"),
        ({"rewards": "abc"}, r"rewards must be a list of one number for each action; got 'abc'"),
        ({"rewards": 3.0}, r"rewards must be a list"),
        ({"weights": [0.2, -0.1, 0.5]}, r"weights\[1\] must be from 0 to 1000; got -0.1"),
        ({"weights": [0, 0, 0]}, r"weights must have at least one entry above 0"),
        ({"temperature": 1.0}, r"temperature is not a setting of this lab; its settings are \['beta', 'rewards', 'wei"),
    ],
)
def test_tilt_refuses(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.tilt(**state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"level": 2.5}, "level must be a whole number; got 2.5"),
        ({"on": 1}, "on must be True or False; got 1"),
        ({"kind": "median"}, r"kind must be one of \['mean', 'max'\]; got 'median'"),
        ({"counts": [1.5, 2]}, r"counts\[0\] must be a whole number; got 1.5"),
        ({"scores": [[1.0, 2.0], [1.0]]}, r"scores\[1\] must hold 2 to 4 entries"),
        ({"scores": [[1.0, 2.0], [1.0, 2.0, 3.0]]}, r"scores must have prompts of one length; got \[2, 3\]"),
        ({"scores": []}, "scores must hold 1 to 3 entries, prompts; got 0"),
        ({"scores": [1.0, 2.0]}, r"scores\[0\] must be a list of answers; got 1.0"),
        ({"level": 7, "on": True}, "level must not be 7 while on"),
    ],
)
def test_every_kind_of_control_refuses(state, message):
    with pytest.raises(ValueError, match="^" + message):
        demo(**state)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Slider("a", "a", "a", 2.0, 0.0, 1.0),
        lambda: Slider("a", "a", "a", 0.5, 0.0, 1.0, log=True),
        lambda: Slider("a", "a", "a", 0.5, 0.0, 1.0, format="3f"),
        lambda: Choice("a", "a", {"x": "x"}, "y"),
        lambda: Table("row", (Column("a", "a"),), {"a": (1.0,)}, 2, 3),
        lambda: Matrix("a", "a", "row", "column", ((1.0,),), 2, 3, 1, 1),
        lambda: panels.Axis("x", log=True),
        lambda: panels.Axis("x", (0.0, 1.0), log=True),
        lambda: panels.Axis("x", "ends", log=True),
    ],
)
def test_a_declaration_that_cannot_stand_is_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_arrays_and_tensors_serve_as_tables_and_become_plain_numbers():
    view = labs.tilt(rewards=np.array([1, 2]), weights=torch.tensor([0.25, 0.75]))
    assert view.state["rewards"] == [1.0, 2.0] and view.state["weights"] == [0.25, 0.75]
    assert type(view.result["kl"]) is float and type(view.result["top"]) is int


def test_a_function_of_the_readers_own_must_give_every_key():
    with pytest.raises(ValueError, match=r"^compute must return every key the lab shows; missing \['best_supp"):
        labs.tilt(compute=lambda state: {"p": [1.0]})


def test_state_and_result_are_copies():
    view = labs.tilt()
    view.state["rewards"].append(1.0)
    view.result["p"][0] = 5.0
    view.start["weights"][0] = 9.0
    assert view.state == view.start == labs.tilt.state() and view.result["p"][0] < 1


def test_update_changes_what_it_names_and_nothing_where_one_part_is_wrong():
    view = labs.tilt()
    view.update(beta=0.1)
    before = view.result
    with pytest.raises(ValueError, match="weights must have at least one"):
        view.update(beta=5.0, weights=[0, 0, 0])
    assert view.state["beta"] == 0.1 and view.result == before


@every_lab
def test_every_preset_and_end_of_every_control_gives_a_result_or_a_named_refusal(lab):
    refused = 0
    for state in edge_states(lab):
        try:
            assert lab.run(lab.compute, state).keys() >= set(lab.result_keys())
        except ValueError as error:
            refused += 1
            assert any(key in str(error) for key in state)
    assert refused <= len(edge_states(lab)) // 4


@every_lab
def test_a_lab_offers_its_settings_as_keywords(lab):
    assert list(inspect.signature(lab).parameters) == ["compute", *lab.state()]


# ---------------------------------------------------------------- what a notebook stores


class Markup(HTMLParser):
    """Every element with its attributes; raises on tags that do not close as they opened."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], ""
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@every_lab
def test_a_cell_stores_widget_view_html_and_text_the_same_each_time(lab):
    first, second = lab()._repr_mimebundle_(), lab()._repr_mimebundle_()
    assert first.keys() == {WIDGET_VIEW, "text/html", "text/plain"}
    assert first["text/html"] == second["text/html"] and first["text/plain"] == second["text/plain"]
    assert first[WIDGET_VIEW]["model_id"] != second[WIDGET_VIEW]["model_id"]
    assert "0x" not in first["text/plain"] + first["text/html"]


def test_the_ids_of_widget_views_count_up_so_that_a_clean_run_stores_the_same():
    ids = [labs.tilt()._repr_mimebundle_()[WIDGET_VIEW]["model_id"] for _ in range(2)]
    numbers = [int(re.fullmatch(r"lab-tilt-(\d+)", one)[1]) for one in ids]
    assert numbers[1] == numbers[0] + 1


def test_one_view_shown_twice_is_one_widget():
    view = labs.tilt()
    assert view._repr_mimebundle_() == view._repr_mimebundle_()


def test_tilt_in_words():
    assert repr(labs.tilt(beta=0.6)).splitlines() == [
        "Tilt a policy by reward (beta=0.6, rewards=[-0.5, 0.7, 1.1], weights=[0.2, 0.3, 0.5])",
        "E[r] under p = 0.974; KL(p‖q), nats = 0.194; E[r] − β·KL = 0.858; log Z = 1.430",
        "At β = 0.6 the policy pays 0.194 nats to raise E[r] from 0.660 to 0.974; "
        "action c leads with 74.9% (reference 50.0%).",
    ]


@every_lab
def test_the_element_carries_strict_json_of_description_and_state(lab):
    view = lab()
    tag, attributes = Markup(view.html()).elements[0]
    assert tag == "align-lab" and attributes["data-name"] == lab.name

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    carried = json.loads(attributes["data-lab"], parse_constant=refuse)
    assert carried["state"] == view.state
    assert carried["lab"]["title"] == lab.title and "compute" not in carried["lab"]
    assert [control["type"] for control in carried["lab"]["controls"]] == [control.type for control in lab.controls]


def test_json_without_infinities_is_all_that_leaves():
    with pytest.raises(ValueError, match="Out of range"):
        static.to_json({"a": math.inf})


@every_lab
def test_the_figure_drawn_in_advance_is_readable_aloud_and_makes_no_headings(lab):
    markup = Markup(lab().html())
    tags = [tag for tag, _ in markup.elements]
    assert not {"h1", "h2", "h3", "h4", "script", "style", "img", "input", "button"} & set(tags)
    assert not any("id" in attributes for _, attributes in markup.elements)
    for tag, attributes in markup.elements:
        if attributes.get("role") == "img":
            assert attributes["aria-label"].strip()
        if tag == "svg":
            assert attributes["aria-hidden"] == "true"
    assert lab.title in markup.words and lab().words() in markup.words
    assert static.NO_SCRIPT in markup.words


def test_the_figure_of_a_readers_own_function_stays_a_figure_and_says_so():
    view = labs.tilt(compute=labs.tilt.compute)
    assert "data-lab=" not in view.html() and static.DRAWN_ONCE in view.html().replace("&#x27;", "'")


@every_lab
def test_the_python_that_a_lab_offers_runs_and_gives_its_numbers(lab, capsys):
    for state in random_states(lab, 12, seed=3):
        try:
            view = lab(**state)
        except ValueError:
            continue
        scope = {}
        exec(view.python(), scope)
        # What the source calls by a name of the state or of the result must be just that.
        known = {**view.state, **view.result}
        named = {key: value for key, value in scope.items() if key in known and not callable(value)}
        named = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in named.items()}
        assert differences({key: known[key] for key in named}, named) == []
        assert named.keys() & view.result.keys()
        assert capsys.readouterr().out or lab is demo


def test_a_lab_works_where_no_kernel_runs():
    # Outside a kernel ipywidgets opens no channel; the bundle is made all the same.
    view = labs.tilt()
    view._repr_mimebundle_()
    assert getattr(view.widget.box.comm, "kernel", None) is None


# ---------------------------------------------------------------- widgets


def walk(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def parts(view, kind):
    return [widget for widget in walk(view.widget.box) if isinstance(widget, kind)]


def everything_drawn(view):
    return "".join(widget.value for widget in parts(view, ipywidgets.HTML))


def texts(view):
    return {widget.tooltip: widget for widget in parts(view, ipywidgets.Text)}


def press(view, label):
    next(b for b in parts(view, ipywidgets.Button) if b.description == label).click()


def test_moving_the_slider_redraws_and_sets_the_state():
    view = labs.tilt()
    slider = parts(view, ipywidgets.FloatLogSlider)[0]
    before = everything_drawn(view)
    slider.value = 0.05
    assert view.state["beta"] == 0.05
    assert view.result["p"] == pytest.approx(
        closed_form.optimal_policy([0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], beta=0.05).tolist(), rel=RTOL
    )
    after = everything_drawn(view)
    assert after != before and "β = 0.05" in after
    assert texts(view)["beta, the price of one nat of KL"].value == "0.05"


def test_the_browsers_echo_of_a_rounded_handle_changes_nothing():
    view = labs.tilt()
    slider = parts(view, ipywidgets.FloatLogSlider)[0]
    view.update(beta=0.3)
    slider.value = 10**-0.52  # the step nearest to 0.3, which the browser sends back
    assert view.state["beta"] == 0.3
    slider.value = 10**-0.53  # the next step is a move
    assert view.state["beta"] == 0.295


def test_a_cell_takes_a_number_and_the_bars_follow():
    view = labs.tilt()
    texts(view)["reward, action a"].value = "2"
    assert view.state["rewards"] == [2.0, 0.7, 1.1]
    weights = [0.2 * math.exp(2 / 0.6), 0.3 * math.exp(0.7 / 0.6), 0.5 * math.exp(1.1 / 0.6)]
    assert f"tilted p {weights[0] / sum(weights):.3f}" in everything_drawn(view)


def test_a_handle_moved_where_only_the_function_refuses_says_why_and_returns():
    view = demo(on=True, level=6)
    slider = parts(view, ipywidgets.IntSlider)[0]
    slider.value = 7
    assert view.state["level"] == slider.value == 6 and texts(view)["the level"].value == "6"
    assert "the level: level must not be 7 while on. The last good value stays in use." in everything_drawn(view)
    slider.value = 8
    assert view.state["level"] == 8 and "must not be" not in everything_drawn(view)
    slider.value = 7
    view.update(on=False)
    assert "must not be" not in everything_drawn(view)


def test_a_box_ticked_where_only_the_function_refuses_says_why_and_stays_clear():
    view = demo(level=7)
    box = parts(view, ipywidgets.Checkbox)[0]
    box.value = True
    assert box.value is view.state["on"] is False
    assert "switched on: level must not be 7 while on." in everything_drawn(view)
    view.update(level=8)
    assert "must not be" not in everything_drawn(view)
    box.value = True
    assert view.state["on"] is True


@pytest.mark.parametrize("rubbish", ["abc", "", "1,5", "1e9", "nan"])
def test_rubbish_in_a_cell_gets_a_message_and_the_last_good_result_stays(rubbish):
    view = labs.tilt()
    before, drawn = view.result, view.widget.panels.value
    cell = texts(view)["reward, action b"]
    cell.value = rubbish
    assert view.result == before and view.widget.panels.value == drawn and cell.value == rubbish
    assert 'role="alert">reward, action b: Type a number from −1000 to 1000.' in everything_drawn(view)
    assert "lab-bad" in cell._dom_classes
    # Other controls go on working, and leave the text for its reader to mend.
    parts(view, ipywidgets.FloatLogSlider)[0].value = 0.1
    assert view.state["beta"] == 0.1 and cell.value == rubbish
    cell.value = "−0.25"
    assert view.state["rewards"][1] == -0.25
    assert "lab-bad" not in cell._dom_classes and "alert" not in everything_drawn(view)


def test_a_table_that_the_lab_cannot_use_is_refused_in_the_words_of_the_function():
    view = labs.tilt(weights=[0, 0, 1])
    texts(view)["weight, action c"].value = "0"
    assert view.state["weights"] == [0.0, 0.0, 1.0]
    assert "weights must have at least one entry above 0." in everything_drawn(view)


def test_typing_the_number_a_refused_cell_still_holds_clears_the_message():
    view = labs.tilt()
    cell = texts(view)["reward, action b"]
    cell.value = "x"
    cell.value = "0.7"
    assert "alert" not in everything_drawn(view) and "lab-bad" not in cell._dom_classes


def test_a_beta_typed_beside_the_slider_is_taken_or_refused():
    view = labs.tilt()
    reading = texts(view)["beta, the price of one nat of KL"]
    reading.value = "0.04"
    assert view.state["beta"] == 0.04 and parts(view, ipywidgets.FloatLogSlider)[0].value == 0.04
    reading.value = "0"
    assert view.state["beta"] == 0.04 and "Type a number from 0.01 to 100." in everything_drawn(view)
    parts(view, ipywidgets.FloatLogSlider)[0].value = 10.0
    assert reading.value == "10" and "alert" not in everything_drawn(view)


def test_rows_can_be_added_and_removed_within_limits():
    view = labs.tilt()
    for count in range(4, 9):
        press(view, "Add action")
        assert len(view.state["rewards"]) == len(view.state["weights"]) == count
    buttons = {b.description: b for b in parts(view, ipywidgets.Button)}
    assert buttons["Add action"].disabled and not buttons["Remove action"].disabled
    assert "reward, action h" in texts(view)
    for _ in range(6):
        press(view, "Remove action")
    assert view.state["rewards"] == [-0.5, 0.7] and buttons["Remove action"].disabled


def test_removing_a_row_that_the_lab_needs_is_refused_with_a_message():
    view = labs.tilt(weights=[0, 0, 1])
    press(view, "Remove action")
    assert view.state["weights"] == [0.0, 0.0, 1.0]
    assert "weights must have at least one entry above 0." in everything_drawn(view)


def test_presets_are_pressed_while_they_hold_and_say_what_to_see():
    view = labs.tilt(beta=2.0)
    buttons = {b.description: b for b in parts(view, ipywidgets.Button)}
    buttons["Outside the support"].click()
    assert view.state["weights"] == [0.2, 0.3, 0.5, 0.0]
    assert "lab-pressed" in buttons["Outside the support"]._dom_classes
    assert "so p(d) = 0 at every β" in everything_drawn(view)
    texts(view)["weight, action d"].value = "0.1"
    assert "lab-pressed" not in buttons["Outside the support"]._dom_classes


def test_reset_returns_to_the_start_and_drops_refused_texts():
    view = labs.tilt(beta=2.0)
    press(view, "A wrong reward")
    texts(view)["reward, action b"].value = "x"
    press(view, "Reset")
    assert view.state == view.start == {**labs.tilt.state(), "beta": 2.0}
    assert "alert" not in everything_drawn(view)
    assert texts(view)["reward, action b"].value == "0.7"


def test_the_source_is_shown_and_hidden_and_follows_the_state():
    view = labs.tilt()
    press(view, "Show as Python")
    assert "0.5], [-0.5, 0.7, 1.1], 0.6" in everything_drawn(view)
    view.update(beta=0.25)
    assert "1.1], 0.25" in everything_drawn(view)
    press(view, "Hide Python")
    assert "optimal_policy" not in everything_drawn(view)


def test_every_kind_of_widget_sets_its_part_of_the_state():
    view = demo()
    parts(view, ipywidgets.IntSlider)[0].value = 8
    parts(view, ipywidgets.FloatSlider)[0].value = -0.25
    parts(view, ipywidgets.Checkbox)[0].value = True
    parts(view, ipywidgets.ToggleButtons)[0].value = "max"
    texts(view)["prompt 2, answer 1"].value = "−3"
    press(view, "Add prompt")
    press(view, "Add answer")
    press(view, "Remove prompt")
    assert view.state == {
        "level": 8,
        "rate": 0.1,
        "size": -0.25,
        "on": True,
        "kind": "max",
        "counts": [3, 5],
        "scores": [[1.0, 0.0, 0.0], [-3.0, 0.25, 0.0]],
    }
    assert not parts(view, ipywidgets.FloatSlider)[0].continuous_update
    assert type(view.state["level"]) is int
    press(view, "Start")
    assert view.state == demo.state()
    assert not parts(view, ipywidgets.Checkbox)[0].value and parts(view, ipywidgets.ToggleButtons)[0].value == "mean"


def test_a_whole_number_is_asked_for_where_only_one_will_do():
    view = demo()
    texts(view)["count, item 1"].value = "2.5"
    assert view.state["counts"] == [3, 5] and "Type a whole number from 0 to 12." in everything_drawn(view)


def test_nothing_is_shown_through_an_output_widget():
    assert not [w for view in (labs.tilt(), demo()) for w in walk(view.widget.box) if isinstance(w, ipywidgets.Output)]


def test_the_style_sheet_knows_every_role_and_both_themes():
    sheet = style_sheet()
    assert all(f".lab-role-{role}{{" in sheet and f"--lab-{role}:" in sheet for role in LIGHT)
    assert 'html[data-theme="dark"]' in sheet and 'data-jp-theme-light="false"' in sheet
    assert "url(" not in sheet and "@import" not in sheet
    used = set(re.findall(r"var\((--lab-[\w-]+)", sheet))
    set_somewhere = set(re.findall(r"(--lab-[\w-]+):", sheet)) | {"--lab-done"}
    assert used <= set_somewhere


def test_a_role_that_no_palette_has_is_not_used():
    def roles(value):
        if isinstance(value, dict):
            return ({value["role"]} if "role" in value else set()).union(*map(roles, value.values()))
        return set().union(*map(roles, value)) if isinstance(value, list) else set()

    for lab in ALL:
        assert roles(lab.describe()) <= LIGHT.keys(), lab.name


def test_labs_are_registered_under_their_names():
    assert all(
        isinstance(lab, Lab) and getattr(labs, name) is lab and lab.name == name for name, lab in labs.LABS.items()
    )
    assert "tilt" in labs.LABS
