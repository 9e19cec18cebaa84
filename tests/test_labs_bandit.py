"""Lab *bandit* against the printed runs, NumPy's own draws and sums by hand."""

import math

import numpy as np
import pytest
from labs_demo import SCRIPTS
from tolerances import RTOL

from labsrc import labs


def test_the_worked_case_is_the_printed_run():
    result = labs.bandit().result
    assert [f"{result['path_2'][step]:.4f}" for step in (0, 1, 20, 40, 80)] == [
        "0.2500", "0.2883", "0.9179", "0.9833", "0.9906",
    ]  # fmt: skip
    assert result["best"] == result["top"] == 2 and not result["slow"]
    assert result["step"] == list(range(81))


def test_reward_and_divergence_are_those_of_the_last_policy():
    result = labs.bandit().result
    p = result["p"]
    assert p == [result[f"path_{action}"][-1] for action in range(4)]
    assert result["expected_reward"] == pytest.approx(-0.2 * p[0] + 0.3 * p[1] + p[2], rel=RTOL)
    assert result["kl"] == pytest.approx(math.log(4) + sum(x * math.log(x) for x in p), rel=RTOL)
    assert result["expected_reward_start"] == pytest.approx(1.1 / 4, rel=RTOL)


def test_constant_groups_are_counted_on_the_draws_that_numpy_makes():
    result = labs.bandit(group_size=4, seed=3).result
    stream, constant = np.random.default_rng(3), 0
    for step in range(80):
        policy = [result[f"path_{action}"][step] for action in range(4)]
        constant += len(set(stream.choice(4, size=4, p=policy))) == 1
    assert result["constant_groups"] == constant > 0
    assert result["constant_share"] == constant / 80


def test_equal_rewards_move_nothing_and_every_group_is_constant():
    result = labs.bandit(rewards=[1.0, 1.0, 1.0, 1.0]).result
    assert result["flat"] and result["constant_groups"] == 80
    assert result["p"] == pytest.approx([0.25] * 4, rel=RTOL)


def test_the_optimum_is_the_tilted_start_and_without_penalty_the_best_actions():
    tilted = [math.exp(reward / 0.5) for reward in (-0.2, 0.3, 1.0, 0.0)]
    expected = [weight / sum(tilted) for weight in tilted]
    assert labs.bandit(beta=0.5).result["optimum"] == pytest.approx(expected, rel=RTOL)
    assert labs.bandit(beta=0.0, rewards=[1.0, 0.0, 1.0, 0.5]).result["optimum"] == [0.5, 0.0, 0.5, 0.0]


def test_a_gap_of_a_hundredth_is_learned_nearly_as_far_as_one_of_seven_tenths():
    close = labs.bandit(rewards=[-0.2, 0.3, 0.31, 0.0]).result
    assert round(close["best_p"], 3) == 0.988 and round(labs.bandit().result["best_p"], 3) == 0.991
    gap = math.exp(0.01 / 0.02)
    assert close["optimum"][2] == pytest.approx(gap / (gap + 1), abs=1e-6) and round(close["optimum"][2], 2) == 0.62


def test_a_hundred_times_the_reward_makes_nearly_the_same_run():
    times = labs.bandit(rewards=[-20.0, 30.0, 100.0, 0.0]).result
    assert times["p"] == pytest.approx(labs.bandit().result["p"], abs=1e-4)


def test_with_one_update_a_group_the_clip_radius_changes_no_digit():
    narrow, wide = (labs.bandit(inner_updates=1, clip=clip).result["p"] for clip in (0.01, 0.9))
    assert narrow == wide


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"group_size": 1}, "group_size must be from 2 to 64; got 1"),
        ({"inner_updates": 1.5}, "inner_updates must be a whole number; got 1.5"),
        ({"rewards": [0.0, 1.0, 2.0]}, "rewards must hold 4 to 4 entries"),
        ({"clip": 1.0}, "clip must be from 0.01 to 0.9; got 1.0"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.bandit(**state)


@pytest.mark.browser
def test_the_page_draws_numpys_uniforms_to_the_last_bit(browser):
    page = browser.new_page()
    page.add_script_tag(path=next(path for path in SCRIPTS if path.name == "pcg64.js"))
    for seed in [*range(100), 2**31 - 1, 2**31, 2**32 - 1]:
        drawn = page.evaluate("(seed) => [...alignLabs.uniforms(seed, 100)]", seed)
        assert drawn == np.random.default_rng(seed).random(100).tolist(), seed
    page.close()
