"""Lab *kl_estimators*: its values by plain sums, its gradients by differences and from known cases, its words."""

import math

import numpy as np
import pytest
from labs_demo import random_states
from tolerances import RTOL

from labsrc import labs
from labsrc.kl_estimators import PLACEMENTS

NAMES = ("k1", "k2", "k3")
PRESETS = {preset.label: preset.state for preset in labs.kl_estimators.presets}
K = {
    "k1": lambda log_ratio: log_ratio,
    "k2": lambda log_ratio: log_ratio**2 / 2,
    "k3": lambda log_ratio: math.exp(-log_ratio) + log_ratio - 1,
}


def result(**state):
    return labs.kl_estimators(**state).result


def gradients(**state):
    here = result(**state)
    return {name: here[f"gradient_{name}"] for name in ("truth", *NAMES)}


# ---------------------------------------------------------------- known cases


def test_the_worked_policies_have_the_known_divergence_and_gradients():
    here, by_name = result(), gradients()
    assert here["kl"] == pytest.approx(0.634897, abs=5e-7)
    assert by_name["k1"] == pytest.approx([0.0, 0.0, 0.0], abs=1e-15)
    assert by_name["k2"] == pytest.approx(by_name["truth"], rel=RTOL)
    assert by_name["k3"] == pytest.approx([0.5, -0.1, -0.4], rel=RTOL)
    by_hand = [p * (math.log(p / q) - here["kl"]) for p, q in ((0.7, 0.2), (0.2, 0.3), (0.1, 0.5))]
    assert by_name["truth"] == pytest.approx(by_hand, rel=RTOL)


def test_the_numbers_of_the_second_case_to_their_last_digit():
    state = {"policy": [math.exp(z) for z in (0.1, 0.4, 0.9)], "reference": [0.5, 0.3, 0.2], "old": [1, 1, 1]}
    here, by_name = result(**state), gradients(**state)
    assert (here["kl"], here["kl_forward"]) == pytest.approx((0.246496, 0.241041), abs=5e-7)
    assert by_name["truth"] == pytest.approx([-0.23474, -0.07766, 0.31240], abs=5e-6)
    assert by_name["k3"] == pytest.approx([-0.28144, -0.00498, 0.28641], abs=6e-6)


FORWARD = "other\u00a0KL"


@pytest.mark.parametrize(
    ("old_share", "table"),
    [
        (0.0, [("zero", "✓", FORWARD), ("zero", "✓", FORWARD), ("✓", None, "✓"), ("✓", None, None), ("✓", None, None)]),
        (1.0, [(None, None, None), ("zero", "✓", FORWARD), ("✓", None, "✓"), (None, None, None), ("✓", None, None)]),
    ],
)
def test_the_table_of_places_says_what_is_exact(old_share, table):
    here = result(old_share=old_share)
    for row, place in enumerate(PLACEMENTS):
        for name, expected in zip(NAMES, table[row], strict=True):
            cell = here[f"table_{name}"][row]
            if expected is None:
                assert -1 <= float(cell.replace("−", "-")) <= 1, (place, name)
            else:
                assert cell == expected, (place, name)


def test_on_old_samples_k1_as_a_loss_points_uphill():
    view = labs.kl_estimators(**PRESETS["Loss, old samples"])
    # Its gradient is E_old[∇log π] = old − π, whatever the reference is.
    assert view.result["gradient_k1"] == pytest.approx([-0.4, 0.1, 0.3], rel=RTOL)
    assert view.result["cosine"][1] < -0.9 and view.result["uphill"]
    assert "Descending k1 raises the KL (lowest cosine −0.967)" in view.words()


def test_at_the_reference_there_is_no_direction_and_only_k1_moves():
    here = result(**PRESETS["At the reference"])
    assert here["flat"] and all(map(math.isnan, here["cosine"]))
    assert here["mean"] == pytest.approx([0.0] * 4, abs=1e-15)
    assert here["table_k1"][0] == "not 0" and here["table_k2"] == ["✓"] * 5 and here["table_k3"] == ["✓"] * 5
    assert here["exact_names"] == "k2 and k3"


# ---------------------------------------------------------------- any case, by another road


def distributions(state):
    p, q, old = (np.array(state[key]) / sum(state[key]) for key in ("policy", "reference", "old"))
    return p, q, (1 - state["old_share"]) * p + state["old_share"] * old


def test_mean_and_spread_are_plain_sums():
    for state in random_states(labs.kl_estimators, 30, seed=12):
        p, q, sampling = distributions(state)
        here = result(**state)
        ratio = p / sampling if "ρ" in state["placement"] else np.ones_like(p)
        for row, name in enumerate(NAMES, start=1):
            values = ratio * np.array([K[name](math.log(a / b)) for a, b in zip(p, q, strict=True)])
            mean = (sampling * values).sum()
            # Near π = ref the values are differences of nearly equal numbers of order one.
            assert here["mean"][row] == pytest.approx(mean, rel=RTOL, abs=1e-12)
            spread = math.sqrt((sampling * (values - mean) ** 2).sum())
            assert here["spread"][row] == pytest.approx(spread, rel=1e-8, abs=1e-12)
        assert here["mean"][0] == pytest.approx(float((p * np.log(p / q)).sum()), rel=RTOL, abs=1e-12)


def term(place, name, logits, state):
    """The expected loss term as a function of the logits, what is held constant taken at the state's policy."""
    p, q, sampling = distributions(state)
    new = np.exp(logits) / np.exp(logits).sum()
    k_new, k_now = (np.array([K[name](x) for x in np.log(one / q)]) for one in (new, p))
    kinds = {
        "loss": k_new,
        "loss, ρ detached": p / sampling * k_new,
        "loss, ρ in graph": new / sampling * k_new,
        "reward": k_now * np.log(new),
        "reward, with ρ": new / sampling * k_now,
    }
    return float((sampling * kinds[place]).sum())


@pytest.mark.parametrize("place", PLACEMENTS)
def test_gradients_are_those_of_the_expected_term_by_differences(place):
    step = 1e-5
    for state in random_states(labs.kl_estimators, 8, seed=13):
        state = {**state, "placement": place}
        logits, by_name = np.log(distributions(state)[0]), gradients(**state)
        for name in NAMES:
            moved = []
            for action in range(len(logits)):
                shift = step * np.eye(len(logits))[action]
                up, down = term(place, name, logits + shift, state), term(place, name, logits - shift, state)
                moved.append((up - down) / (2 * step))
            # A central difference errs by step²·f‴/6 and by rounding over step; f is of order 1000 at the worst.
            assert by_name[name] == pytest.approx(moved, rel=1e-6, abs=1e-6)


def test_the_noise_of_the_gradient_is_its_spread_over_the_actions():
    p, _, sampling = distributions({**labs.kl_estimators.state(), "old_share": 1.0})
    here = result(old_share=1.0)
    # k1 as a loss: one sample gives onehot(a) − π.
    by_sample = np.eye(3) - p
    deviation = by_sample - sampling @ by_sample
    assert here["gradient_spread"][1] == pytest.approx(math.sqrt(sampling @ (deviation**2).sum(1)), rel=RTOL)


def test_weights_are_divided_by_their_sum_and_old_samples_are_mixed_in():
    here = result(policy=[7, 2, 1], old=[3, 3, 4], old_share=0.25)
    assert here["p"] == pytest.approx([0.7, 0.2, 0.1], rel=RTOL)
    assert here["sampling"] == pytest.approx([0.6, 0.225, 0.175], rel=RTOL)
    assert here["samples"] == "25% of the samples old"


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("Loss, fresh samples", "In the loss, fresh samples: ∇KL(π‖ref) comes from k2. KL(π‖ref) is 0.6349"),
        ("Loss, old samples", "In the loss, all samples old: ∇KL(π‖ref) comes from none of the three."),
        ("Reward, fresh samples", "In the reward, fresh samples: ∇KL(π‖ref) comes from k1."),
        ("ρ detached", "In the loss, ρ detached, all samples old: ∇KL(π‖ref) comes from k2."),
        ("ρ in the graph", "In the loss, ρ in graph, all samples old: ∇KL(π‖ref) comes from k1 and k3."),
        ("At the reference", "Placed in the loss, 0 comes from k2 and k3; what is not 0 moves π away."),
    ],
)
def test_the_sentence_says_what_is_exact(preset, words):
    assert words in labs.kl_estimators(**PRESETS[preset]).words()


def test_a_preset_is_the_same_case_wherever_the_lab_started():
    assert all(preset.state.keys() == labs.kl_estimators.state().keys() for preset in labs.kl_estimators.presets)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"policy": [0.5, 0.5, 0.0]}, r"policy\[2\] must be from 0.01 to 10; got 0.0"),
        ({"policy": [0.5, 0.5]}, "policy and reference and old must have one entry for each action; got lengths"),
        ({"placement": "somewhere"}, r"placement must be one of \['loss', "),
        ({"old_share": 1.5}, "old_share must be from 0 to 1; got 1.5"),
    ],
)
def test_a_setting_out_of_range_is_refused(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.kl_estimators(**state)
