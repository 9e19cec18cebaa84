"""Lab *baseline_bias* against the printed enumeration, fractions by hand and the weights of 0/1 rewards."""

import math

import pytest
from tolerances import RTOL

from labsrc import labs

ROWS = ("∇J", "no baseline", "group mean", "leave one out", "standardised")


def of(result, key):
    return dict(zip(ROWS, result[key], strict=True))


def binary(p, **options):
    return labs.baseline_bias(rewards=[1.0, 0.0], weights=[p, 1 - p], std_eps=1e-6, **options).result


def test_the_worked_case_is_the_printed_enumeration():
    result = labs.baseline_bias().result
    truth = [-0.372, -0.198, 0.570]
    assert result["gradient_truth"] == pytest.approx(truth, rel=RTOL)
    assert result["gradient_raw"] == pytest.approx(truth, rel=RTOL)
    assert result["gradient_centered"] == pytest.approx([2 / 3 * value for value in truth], rel=RTOL)
    assert result["gradient_leave_one_out"] == pytest.approx(truth, rel=RTOL)
    assert result["groups"] == 27 and result["one_less"] == pytest.approx(2 / 3, rel=RTOL)


def test_only_the_standardised_gradient_is_turned():
    angles = of(labs.baseline_bias().result, "angle")
    assert [angles[row] for row in ROWS[:4]] == [0.0] * 4
    # By the cosine of the two printed vectors, the longer road.
    result = labs.baseline_bias().result
    a, b = result["gradient_truth"], result["gradient_standardized"]
    cosine = sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))
    assert angles["standardised"] == pytest.approx(math.degrees(math.acos(cosine)), rel=1e-6)
    assert round(angles["standardised"], 2) == 3.10


@pytest.mark.parametrize("group_size", [2, 5, 8])
def test_the_group_mean_keeps_one_less_than_g_of_g_parts(group_size):
    ratios = of(labs.baseline_bias(group_size=group_size).result, "length_ratio")
    assert ratios["group mean"] == pytest.approx(1 - 1 / group_size, rel=RTOL)
    assert ratios["leave one out"] == pytest.approx(1.0, rel=RTOL)


def test_with_two_reward_values_the_standardised_gradient_is_the_weight_times_the_gradient_of_p():
    result = binary(0.1, group_size=8)
    gradient_of_p = 0.1 * 0.9  # on the logit of the right action
    assert result["gradient_standardized"][0] == pytest.approx(result["weight_here"] * gradient_of_p, rel=1e-4)
    assert of(result, "angle")["standardised"] == 0.0


def test_weights_by_hand():
    assert binary(0.3, group_size=2)["weight_here"] == pytest.approx(1.0, rel=RTOL)
    assert binary(0.3, group_size=2, ddof="1")["weight_here"] == pytest.approx(math.sqrt(0.5), rel=RTOL)
    # G = 3: K = 0, 1, 2 others succeed; √2 + 0, √(1/2) + √(1/2), 0 + √2 are all √2.
    assert binary(0.7, group_size=3)["weight_here"] == pytest.approx(math.sqrt(2), rel=RTOL)
    assert binary(0.5, group_size=8)["weight_limit_here"] == pytest.approx(2.0, rel=RTOL)


def test_the_curves_are_below_their_limit_and_close_in_on_it():
    result = labs.baseline_bias(group_size=8).result
    curves = zip(result["curve_weight"], result["curve_large"], result["curve_limit"], strict=True)
    assert all(small < large < limit + 0.02 for small, large, limit in curves)
    at = result["curve_p"].index(0.5)
    assert result["curve_large"][at] == pytest.approx(2.0, abs=0.02)


def test_equal_rewards_have_no_gradient_and_no_direction():
    view = labs.baseline_bias(rewards=[2.0, 2.0, 2.0])
    assert view.result["flat"] and math.isnan(view.result["turned"])
    assert view.result["length"] == pytest.approx([0.0] * 5, abs=1e-12)
    assert view.words().startswith("All rewards are equal")


def test_adding_fifty_to_every_reward_changes_the_noise_without_a_baseline_alone():
    plain, shifted = (
        of(labs.baseline_bias(rewards=rewards).result, "spread") for rewards in ([-1, 0.2, 2], [49, 50.2, 52])
    )
    for row in ("group mean", "leave one out", "standardised"):
        assert shifted[row] == pytest.approx(plain[row], rel=1e-9)
    assert shifted["no baseline"] > 20 > 1 > plain["no baseline"]
