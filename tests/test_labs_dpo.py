"""Lab *dpo*: its numbers by hand and by differences, what it draws, what it says, what it refuses."""

import math
import re

import pytest
from labs_demo import edge_states, random_states
from tolerances import RTOL

from labsrc import labs

LOG_PROBS = ("logp_chosen", "logp_rejected", "logp_ref_chosen", "logp_ref_rejected")
PRESETS = {preset.label: preset.state for preset in labs.dpo.presets}


def result(**state):
    return labs.dpo(**state).result


def pair(*values, beta=0.1):
    return result(**dict(zip(LOG_PROBS, values, strict=True)), beta=beta)


def test_the_two_worked_pairs_have_logits_of_two_and_three_hundredths():
    first, second = pair(-2.2, -2.8, -2.0, -2.4), pair(-1.7, -2.1, -1.9, -2.0)
    assert (first["logits"], second["logits"]) == pytest.approx((0.02, 0.03), rel=RTOL)
    assert (first["loss"] + second["loss"]) / 2 == pytest.approx(0.6807284280340413, rel=RTOL)
    assert first["log_ratios"] == pytest.approx([-0.2, -0.4, 0.2], rel=RTOL)
    assert first == result()


def test_swapping_the_policys_columns_does_not_mirror_the_logit():
    # −2.8 + 2.0 = −0.8 and −2.2 + 2.4 = 0.2: the margin is −1, not the −0.2 that a mirror would give.
    assert result(**PRESETS["Swap"])["logits"] == pytest.approx(-0.1, rel=RTOL)


@pytest.mark.parametrize("beta", [0.01, 0.1, 2.0])
def test_training_starts_at_log_two_and_half_weight_whatever_beta_is(beta):
    at_start = result(**{**PRESETS["Start of training"], "beta": beta})
    assert at_start["loss"] == at_start["no_margin_loss"] == pytest.approx(math.log(2), rel=RTOL)
    assert at_start["weight"] == pytest.approx(0.5, rel=RTOL) and at_start["push"] == pytest.approx(beta / 2, rel=RTOL)
    assert at_start["no_margin"] and not at_start["wrong_side"]


def test_the_chosen_probability_falls_while_the_loss_falls():
    before, after = (result(**PRESETS[f"Chosen falls: {when}"]) for when in ("before", "after"))
    assert (before["p_chosen"], after["p_chosen"]) == pytest.approx((0.4, 0.3), rel=RTOL)
    assert (before["p_rejected"], after["p_rejected"]) == pytest.approx((0.4, 0.15), rel=RTOL)
    # The odds of chosen to rejected go from 1 to 2; the reference's are 2/3, so e^h goes from 3/2 to 3.
    assert before["loss"] == pytest.approx(math.log(1 + 1.5**-0.1), rel=RTOL)
    assert after["loss"] == pytest.approx(math.log(1 + 3**-0.1), rel=RTOL)
    assert after["loss"] < before["loss"] < math.log(2)


def test_the_weight_is_the_slope_of_the_loss_and_pulls_both_log_probs_alike():
    step = 1e-5
    for state in random_states(labs.dpo, 40, seed=5):
        # Away from the ends, where a step would leave the slider's range.
        state = {key: min(max(value, -9.9), -0.1) if key in LOG_PROBS else value for key, value in state.items()}
        here = result(**state)
        for key, sign in (("logp_chosen", -1), ("logp_rejected", 1)):
            up, down = (result(**{**state, key: state[key] + way * step})["loss"] for way in (1, -1))
            # A central difference of step 1e-5 is right to about 1e-10 of a loss of order ten.
            assert (up - down) / (2 * step) == pytest.approx(sign * here["push"], abs=1e-8)
        assert here["push"] == pytest.approx(state["beta"] * here["weight"], rel=RTOL)


def test_far_out_the_loss_is_a_small_number_and_not_zero():
    far = pair(0.0, -10.0, -10.0, 0.0, beta=2.0)
    assert far["logits"] == 40.0
    assert far["loss"] == pytest.approx(math.exp(-40), rel=RTOL) and far["weight"] == pytest.approx(
        math.exp(-40), rel=RTOL
    )
    wrong = pair(-10.0, 0.0, 0.0, -10.0, beta=2.0)
    assert wrong["loss"] == pytest.approx(40.0, rel=RTOL) and wrong["weight"] == pytest.approx(1.0, rel=RTOL)


def test_the_curve_is_the_loss_and_the_dashed_line_touches_it_from_below():
    for state in [*random_states(labs.dpo, 30, seed=6), *edge_states(labs.dpo)]:
        here = result(**state)
        xs, ys = here["curve_logits"], here["curve_loss"]
        assert ys == pytest.approx([math.log1p(math.exp(-abs(x))) + max(-x, 0.0) for x in xs], rel=RTOL)
        assert xs[0] <= here["logits"] <= xs[-1]
        (left, right), (start, end) = here["tangent_logits"], here["tangent_loss"]

        def dashed(x, left=left, right=right, start=start, end=end):
            return start + (end - start) * (x - left) / (right - left)

        assert dashed(here["logits"]) == pytest.approx(here["loss"], abs=1e-12)
        assert all(dashed(x) <= y + 1e-12 for x, y in zip(xs, ys, strict=True))


def test_every_bar_fits_its_axis_and_the_axis_takes_one_of_a_few_lengths():
    spans = set()
    for state in [*random_states(labs.dpo, 60, seed=7), *edge_states(labs.dpo)]:
        here = result(**state)
        low, high = here["log_ratio_span"]
        assert low == -high and all(low <= value <= high for value in here["log_ratios"])
        spans.add(high)
    assert spans <= {1.0, 2.0, 5.0, 10.0, 20.0}


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("Start of training", "No margin: logit 0, weight one half, loss ln 2"),
        ("Worked pair", r"chosen completion lost against the reference \(−0.200 nats\), yet the loss is below"),
        ("Swap", "moved towards the rejected completion: loss above ln 2, weight 0.5250"),
        ("Learned", "leads by 8.000 nats more than under the reference"),
    ],
)
def test_the_sentence_says_which_case_holds(preset, words):
    assert re.search(words, labs.dpo(**PRESETS[preset]).words())


def test_a_preset_is_the_same_case_wherever_the_lab_started():
    assert all(preset.state.keys() == labs.dpo.state().keys() for preset in labs.dpo.presets)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"logp_chosen": 0.5}, "logp_chosen must be from −10 to 0; got 0.5"),
        ({"logp_ref_rejected": -math.inf}, "logp_ref_rejected must be a number; got -inf"),
        ({"beta": 0.0}, "beta must be from 0.01 to 2; got 0.0"),
        ({"margin": 1.0}, "margin is not a setting of this lab"),
    ],
)
def test_a_setting_out_of_range_is_refused(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.dpo(**state)
