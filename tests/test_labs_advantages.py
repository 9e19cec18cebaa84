"""Lab *advantages* against the printed groups and sums by hand."""

import math

import pytest
from tolerances import RTOL

from labsrc import labs


def preset(label):
    return next(one.state for one in labs.advantages.presets if one.label == label)


def rounded(values, digits=4):
    return [round(value, digits) for value in values]


def test_the_worked_groups_are_the_printed_ones():
    result = labs.advantages().result
    assert rounded(result["advantages_1"]) == [-1.2699, 0.1154, 1.5008, -0.3463]
    assert rounded(result["advantages_2"]) == [-1.2648, -0.6324, 0.6324, 1.2648]
    assert result["advantages_3"] == [0.0] * 4 and result["advantages_4"] == []
    assert rounded(result["group_std"], 6) == [0.433013, 1.581139, 0.0]
    assert result["constant_share"] == pytest.approx(1 / 3, rel=RTOL)
    assert (result["constant"], result["prompts"], result["is_constant"]) == (1, 3, ["no", "no", "yes"])


def test_without_a_scale_the_baseline_alone_is_taken_off():
    result = labs.advantages(rewards=[[1.0, 2.0, 6.0]], scale="none").result
    assert result["advantages_1"] == pytest.approx([-2.0, -1.0, 3.0], rel=RTOL)
    alone = labs.advantages(rewards=[[1.0, 2.0, 6.0]], scale="none", baseline="leave_one_out").result
    assert alone["advantages_1"] == pytest.approx([1 - 4.0, 2 - 3.5, 6 - 1.5], rel=RTOL)


def test_the_batch_scale_divides_every_group_by_one_deviation():
    # Deviations from the group means are −1, 1 and −3, 3; the four rewards 0, 2, 0, 6 have mean 2 and variance 6.
    result = labs.advantages(rewards=[[0.0, 2.0], [0.0, 6.0]], scale="batch", std_eps=1e-8).result
    assert result["batch_std"] == pytest.approx(math.sqrt(6), rel=RTOL)
    expected = [3 / (math.sqrt(6) + 1e-8)] * 2
    assert [-result["advantages_2"][0], result["advantages_2"][1]] == pytest.approx(expected, rel=RTOL)
    assert 3 * result["advantages_1"][1] == pytest.approx(result["advantages_2"][1], rel=RTOL)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_leaving_the_sample_out_is_g_over_g_minus_1_times_the_group_mean(scale):
    mean, alone = (
        labs.advantages(scale=scale, baseline=one).result["advantages_2"] for one in ("mean", "leave_one_out")
    )
    assert alone == pytest.approx([4 / 3 * value for value in mean], rel=RTOL)


def test_a_pair_keeps_only_the_sign():
    population, sample = (labs.advantages(rewards=[[3.0, 100.0]], ddof=ddof, std_eps=1e-8).result for ddof in "01")
    assert population["advantages_1"] == pytest.approx([-1.0, 1.0], abs=1e-9)
    assert sample["advantages_1"] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-9)


def test_the_squares_sum_to_g_with_the_population_deviation_and_to_g_minus_1_with_the_sample_one():
    group = [[0.0, 1.0, 5.0, 2.0]]
    sums = [labs.advantages(rewards=group, ddof=ddof, std_eps=1e-8).result["sum_of_squares"][0] for ddof in "01"]
    assert sums == pytest.approx([4.0, 3.0], rel=1e-7)


def test_a_batch_can_be_spread_out_and_say_nothing():
    view = labs.advantages(**preset("Spread, no signal"))
    # The groups' values are 0, 1, 5, 9: mean 15/4, variance (0 + 1 + 25 + 81)/4 − (15/4)².
    assert view.result["batch_std"] == pytest.approx(math.sqrt(107 / 4 - (15 / 4) ** 2), rel=RTOL)
    assert view.result["all_constant"] and view.result["largest"] == 0.0 and view.result["mean_group_std"] == 0.0
    assert "no policy gradient" in view.words()


def test_one_right_answer_of_eight_gets_the_square_root_of_seven():
    result = labs.advantages(**preset("0 or 1"), std_eps=1e-8).result
    assert result["advantages_1"][0] == pytest.approx(math.sqrt(7), abs=1e-6)
    assert result["advantages_2"][0] == pytest.approx(1.0, abs=1e-6)


def test_bars_of_a_prompt_that_is_not_there_are_not_drawn():
    html = labs.advantages().html()
    assert "A, prompt 3</span>" in html and "A, prompt 4</span>" not in html
