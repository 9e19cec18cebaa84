"""Lab *clip*: the four cases by hand, slopes by differences, kinks, the floor, what it draws and says."""

import math

import pytest
from labs_demo import edge_states, random_states
from tolerances import RTOL

from labsrc import labs

PRESETS = {preset.label: preset.state for preset in labs.clip.presets}


def result(**state):
    return labs.clip(**state).result


@pytest.mark.parametrize(
    ("advantage", "ratio", "objective", "slope"),
    [
        (-1.0, 0.5, -0.8, 0.0),
        (-1.0, 0.9, -0.9, -1.0),
        (-1.0, 1.5, -1.5, -1.0),
        (1.0, 0.5, 0.5, 1.0),
        (1.0, 1.1, 1.1, 1.0),
        (1.0, 1.5, 1.2, 0.0),
        (2.0, 1.0, 2.0, 2.0),
        (0.0, 1.5, 0.0, 0.0),
    ],
)
def test_objective_and_slope_by_hand(advantage, ratio, objective, slope):
    here = result(advantage=advantage, ratio=ratio, clip_low=0.2, clip_high=0.2)
    assert (here["objective"], here["slope"]) == pytest.approx((objective, slope), rel=RTOL)


def by_sign(state):
    """The other spelling: A·min(ρ, 1 + ε) for A ≥ 0, A·max(ρ, 1 − ε) for A < 0, with a floor at c·A."""
    ratio, advantage = state["ratio"], state["advantage"]
    if advantage >= 0:
        return advantage * min(ratio, 1 + state["clip_high"])
    bent = max(ratio, 1 - state["clip_low"])
    return advantage * (min(bent, state["dual_clip"]) if state["dual"] else bent)


def test_the_minimum_of_two_products_is_one_product_with_a_bent_ratio():
    for state in [*random_states(labs.clip, 100, seed=8), *edge_states(labs.clip)]:
        assert result(**state)["objective"] == pytest.approx(by_sign(state), rel=RTOL, abs=1e-15)


def test_the_slope_is_the_derivative_of_the_objective():
    step, compared = 1e-6, 0
    for state in random_states(labs.clip, 100, seed=9):
        edges = (1 - state["clip_low"], 1 + state["clip_high"], state["dual_clip"])
        if min(abs(state["ratio"] - edge) for edge in edges) < 2 * step or state["ratio"] < 0.03:
            continue
        up, down = (by_sign({**state, "ratio": state["ratio"] + way * step}) for way in (1, -1))
        # Between its bends the objective is a straight line: the difference is right up to rounding, 1e-16/1e-6.
        assert result(**state)["slope"] == pytest.approx((up - down) / (2 * step), abs=1e-8)
        compared += 1
    assert compared > 80


def test_with_the_ratios_of_a_real_group_nothing_is_clipped():
    ratios, advantages = (1.2840, 1.1052, 0.7788, 0.9048), (-1.2699, 0.1154, 1.5008, -0.3463)
    for ratio, advantage in zip(ratios, advantages, strict=True):
        here = result(ratio=ratio, advantage=advantage, clip_low=0.2, clip_high=0.2)
        assert here["slope"] == pytest.approx(advantage, rel=RTOL) and not here["is_clipped"]


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.2, 0.28, 0.3, 0.7, 0.8900724286, 0.6529675191, 0.9])
def test_on_the_edge_where_it_bends_there_is_no_slope_and_on_the_other_there_is(radius):
    for advantage in (1.5, -1.5):
        low = result(advantage=advantage, ratio=1 - radius, clip_low=radius, clip_high=radius)
        high = result(advantage=advantage, ratio=1 + radius, clip_low=radius, clip_high=radius)
        bent, straight = (high, low) if advantage > 0 else (low, high)
        assert math.isnan(bent["slope"]) and bent["on_kink"] and not bent["is_clipped"]
        assert straight["slope"] == pytest.approx(advantage, rel=RTOL) and not straight["on_kink"]


def test_the_floor_holds_bad_tokens_only():
    assert result(dual=True, advantage=-1.0, ratio=5.0)["objective"] == -3.0
    assert result(dual=True, advantage=-1.0, ratio=5.0)["slope"] == 0.0
    assert result(dual=False, advantage=-1.0, ratio=5.0)["objective"] == pytest.approx(-5.0, rel=RTOL)
    assert math.isnan(result(dual=True, advantage=-1.0, ratio=3.0)["slope"])
    good, without = (result(dual=dual, advantage=1.0, ratio=0.1, dual_clip=2.0) for dual in (True, False))
    assert (good["objective"], good["slope"]) == (without["objective"], without["slope"])


def test_every_floor_that_can_be_set_lies_above_every_clip():
    controls = {control.key: control for control in labs.clip.controls}
    assert controls["dual_clip"].minimum > 1 + controls["clip_high"].maximum


def test_the_curves_pass_through_the_objective_and_break_where_the_slope_does():
    for state in [*random_states(labs.clip, 40, seed=10), *edge_states(labs.clip)]:
        here = result(**state)
        xs = here["curve_ratio"]
        assert xs == sorted(xs) and here["ratio_axis"] == [0.0, xs[-1]] and state["ratio"] < xs[-1]
        assert here["curve_value"] == pytest.approx([by_sign({**state, "ratio": x}) for x in xs], rel=RTOL, abs=1e-15)
        kinks = {x for x, slope in zip(xs, here["curve_slope"], strict=True) if math.isnan(slope)}
        bends = [1 + state["clip_high"]] if state["advantage"] > 0 else [1 - state["clip_low"]]
        bends += [state["dual_clip"]] if state["dual"] and state["advantage"] < 0 else []
        assert kinks == (set(bends) if state["advantage"] else set())
        low, high = here["value_axis"]
        assert all(low < value < high for value in here["curve_value"])


def test_shaded_is_exactly_where_the_slope_is_gone():
    for state in random_states(labs.clip, 40, seed=11):
        here = result(**state)
        bands = [(here["shaded_start"], here["shaded_end"]), (here["floor_start"], here["region_end"])]
        for x, slope in zip(here["curve_ratio"][:-1], here["curve_slope"][:-1], strict=True):
            inside = any(start < x < end for start, end in bands)
            assert math.isnan(slope) or inside == (slope == 0)
        assert 0 < here["low"] < 1 < here["high"] < here["floor_start"] <= here["region_end"]


def test_the_table_gives_each_case_its_slope():
    here = result(advantage=-2.5)
    assert here["case_slope"] == pytest.approx([0.0, 2.5, 0.0, -2.5], rel=RTOL)
    assert result(advantage=2.5, dual=True)["case_slope"] == pytest.approx([0.0, 2.5, 0.0, -2.5, 0.0], rel=RTOL)


@pytest.mark.parametrize(
    ("preset", "row", "flag", "words"),
    [
        ("On policy", None, "on_policy", "ρ = 1, as in the first update of every batch"),
        ("A > 0, enough", 0, "is_clipped", "ρ = 1.5 is past 1.2, the way A asks for: objective 1.2, gradient 0."),
        ("A > 0, wrong way", 1, "is_kept", "against what A asks for: objective 0.5, gradient 1."),
        ("A < 0, enough", 2, "is_clipped", "ρ = 0.5 is past 0.8, the way A asks for: objective −0.8, gradient 0."),
        ("A < 0, wrong way", 3, "is_kept", "against what A asks for: objective −1.5, gradient −1."),
        ("Dual clip", 4, "is_floored", "ρ = 3.5 lies above c = 3: the floor holds the objective at −3"),
        ("Clip higher", None, None, "ρ = 1.25 is inside [0.8, 1.28]"),
    ],
)
def test_each_preset_stands_in_its_case_and_says_so(preset, row, flag, words):
    view = labs.clip(**PRESETS[preset])
    flags = [key for key in ("on_policy", "is_clipped", "is_kept", "is_floored") if view.result[key]]
    assert flags == ([flag] if flag else [])
    assert [index for index, mark in enumerate(view.result["case_now"]) if mark] == ([] if row is None else [row])
    assert words in view.words()


def test_the_regions_are_named_for_the_sign_of_the_advantage():
    good, bad, none = (result(advantage=a, ratio=1.0) for a in (1.0, -1.0, 0.0))
    assert (good["name_low"], good["name_inside"], good["name_high"]) == (
        "kept: wrong way",
        "inside",
        "clipped: enough",
    )
    assert (bad["name_low"], bad["name_high"]) == (good["name_high"], good["name_low"])
    assert (none["name_low"], none["name_inside"], none["name_high"]) == ("", "no signal", "")
    floor = result(**PRESETS["Dual clip"])
    assert (floor["name_low"], floor["name_high"], floor["name_floor"]) == ("clipped", "kept", "clipped")


def test_a_preset_is_the_same_case_wherever_the_lab_started():
    assert all(preset.state.keys() == labs.clip.state().keys() for preset in labs.clip.presets)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"ratio": 0.0}, "ratio must be from 0.02 to 5; got 0.0"),
        ({"clip_low": 1.2}, "clip_low must be from 0.01 to 0.9; got 1.2"),
        ({"dual_clip": 1.1}, "dual_clip must be from 2 to 5; got 1.1"),
        ({"dual": "yes"}, "dual must be True or False; got 'yes'"),
    ],
)
def test_a_setting_out_of_range_is_refused(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.clip(**state)
