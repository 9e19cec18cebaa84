"""The family on one axis: each loss by hand as a function of the margin, and how hard it pushes."""

import math

import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import tensor

from labsrc.preference_family import NAMES, losses_by_margin, pushes_by_margin

BETA, SMOOTHING, GAMMA = 0.5, 0.1, 1.0


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(h: float) -> dict[str, float]:
    return {
        "DPO": -math.log(sigmoid(BETA * h)),
        "smoothed": -0.9 * math.log(sigmoid(BETA * h)) - 0.1 * math.log(sigmoid(-BETA * h)),
        "IPO": (h - 1.0) ** 2,
        "SimPO": -math.log(sigmoid(BETA * h - GAMMA)),
        "KTO": 2 * sigmoid(-BETA * h / 2),
    }


def pushes_by_hand(h: float) -> dict[str, float]:
    x = BETA * h
    return {
        "DPO": 2 * sigmoid(-x),
        "smoothed": (0.9 * sigmoid(-x) - 0.1 * sigmoid(x)) / 0.4,
        "IPO": 1 - h,  # the target is 1/(2·0.5)
        "SimPO": sigmoid(GAMMA - x) / sigmoid(GAMMA),
        "KTO": 4 * sigmoid(x / 2) * sigmoid(-x / 2),
    }


@given(st.floats(-20, 20))
def test_every_loss_is_its_formula(h):
    losses = losses_by_margin([h], beta=BETA, label_smoothing=SMOOTHING, simpo_margin=GAMMA)
    assert tuple(losses) == NAMES
    for name, expected in by_hand(h).items():
        assert losses[name].item() == pytest.approx(expected, rel=1e-9, abs=1e-12), name


@given(st.floats(-20, 20))
def test_every_push_is_its_formula(h):
    pushes = pushes_by_margin([h], beta=BETA, label_smoothing=SMOOTHING, simpo_margin=GAMMA)
    for name, expected in pushes_by_hand(h).items():
        assert pushes[name].item() == pytest.approx(expected, rel=1e-9, abs=1e-12), name


def test_where_there_is_no_margin_every_push_is_one():
    assert all(push.item() == pytest.approx(1, rel=RTOL) for push in pushes_by_margin(0.0, beta=0.3).values())


def test_dpo_and_simpo_never_stop_smoothing_and_ipo_turn_round_and_kto_lets_go_on_both_sides():
    target = math.log(0.9 / 0.1) / BETA
    h = tensor([-30.0, 0.0, 1.0, target, 30.0], dtype=torch.float64)
    push = pushes_by_margin(h, beta=BETA)
    assert (push["DPO"] > 0).all() and (push["SimPO"] > 0).all()
    assert push["smoothed"][3].item() == pytest.approx(0, abs=1e-12) and push["smoothed"][4] < 0
    assert push["IPO"][2].item() == pytest.approx(0, abs=1e-12) and push["IPO"][4] < -20
    assert push["KTO"][[0, 4]].max() < 0.01 and push["KTO"][1] == push["KTO"].max()


def test_the_losses_carry_the_gradient_of_the_margin():
    for name in NAMES:
        assert_gradient(
            lambda h, name=name: losses_by_margin(h, beta=BETA)[name].sum(), tensor([-1.5, 0.2, 3.0]).double()
        )


def test_settings_are_passed_on_and_checked():
    assert losses_by_margin(0.0, beta=0.1, simpo_margin=0.0)["SimPO"].item() == pytest.approx(math.log(2))
    assert losses_by_margin(3.0, beta=0.1, label_smoothing=0.0)["smoothed"] == losses_by_margin(3.0, beta=0.1)["DPO"]
    for settings, message in (
        ({"beta": 0}, "beta must be greater than 0"),
        ({"beta": 1, "label_smoothing": 0.5}, "label_smoothing must be at least 0 and below 0.5"),
        ({"beta": 1, "simpo_margin": -1}, "margin must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            losses_by_margin(0.0, **settings)
        with pytest.raises(ValueError, match=message):
            pushes_by_margin(0.0, **settings)
    with pytest.raises(ValueError, match="margin must be finite"):
        losses_by_margin([math.inf], beta=1.0)
