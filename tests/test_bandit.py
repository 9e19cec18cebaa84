"""labsrc.bandit against a plain NumPy loop, the printed table, and itself one run at a time."""

import dataclasses
import inspect
import math
import re
import runpy
from pathlib import Path

import numpy as np
import plain_bandit
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import RTOL

from labsrc import bandit
from labsrc.bandit import BanditSettings, train_group_bandit, train_group_bandits

# The five rows of the table of chapter 8, ten seeds each.
ROWS = {
    "as is": {},
    "pairs": {"group_size": 2},
    "all rewards 1": {"rewards": (1.0, 1.0, 1.0, 1.0)},
    "best reward lowered": {"rewards": (-0.2, 0.3, 0.31, 0.0)},
    "strong KL": {"beta": 0.5},
}


def plain(run):
    return plain_bandit.run(**dataclasses.asdict(run))


def close(actual, expected):
    """Probabilities, within RTOL of the value and of one."""
    np.testing.assert_allclose(actual.numpy(), expected, rtol=RTOL, atol=RTOL)


def ten_seeds(**options):
    return [BanditSettings(seed=seed, **options) for seed in range(10)]


# ---------------------------------------------------------------- the printed numbers


def test_seed_7_learns_the_best_action_as_printed():
    best = train_group_bandit()[:, 2]
    assert [f"{best[step - 1]:.4f}" for step in (1, 20, 40, 80)] == ["0.2883", "0.9179", "0.9833", "0.9906"]


@pytest.mark.parametrize(
    ("row", "printed"),
    [("as is", ["0.990830", "0.987677", "0.992312"]), ("pairs", ["0.950928", "0.938407", "0.962952"])],
)
def test_ten_seeds_end_at_the_printed_mean_smallest_and_largest(row, printed):
    best = train_group_bandits(ten_seeds(**ROWS[row]))[:, -1, 2]
    assert [f"{value:.6f}" for value in (best.mean(), best.min(), best.max())] == printed


def test_equal_rewards_leave_the_uniform_policy_exactly_where_it_is():
    history = train_group_bandits(ten_seeds(**ROWS["all rewards 1"]))
    assert (history == 0.25).all()


# ---------------------------------------------------------------- the plain loop


@pytest.mark.parametrize("options", ROWS.values(), ids=ROWS.keys())
def test_every_row_of_the_table_agrees_with_the_plain_loop_at_each_step(options):
    runs = ten_seeds(**options)
    close(train_group_bandits(runs), [plain(run) for run in runs])


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 3, "clip": 0.05, "inner_updates": 6, "lr": 0.9},
        {"seed": 4, "clip": 0.9, "inner_updates": 1, "beta": 0.0},
        {"seed": 5, "std_eps": 0.0, "group_size": 2, "steps": 200},
        {"seed": 6, "std_eps": 1.0, "rewards": (0.0, 1.0)},
        {"seed": 8, "rewards": (3.0, -1.0, 0.5, 0.5, 2.9, -7.0), "beta": 1.5, "lr": 0.4},
        {"seed": 2**40, "steps": 1, "group_size": 500},
    ],
)
def test_one_run_agrees_with_the_plain_loop_at_each_step(options):
    close(train_group_bandit(**options), plain(BanditSettings(**options)))


def test_a_uniform_on_an_edge_draws_the_action_above_it_and_never_one_without_probability():
    policy, uniforms = torch.tensor([[[0.0, 0.25, 0.75]], [[0.0, 0.25, 0.5]]], dtype=torch.float64)
    assert bandit._draw(policy, uniforms).tolist() == [[1, 2, 2]]
    # Ten times 0.1 adds up to the largest uniform there is, not to one: it still draws the last of the ten.
    tenths = torch.full((1, 10), 0.1, dtype=torch.float64)
    largest = torch.tensor([[1 - 2**-53]], dtype=torch.float64)
    assert bandit._draw(tenths, largest).tolist() == [[9]]


def test_the_clip_changes_a_run_only_from_the_second_update_of_a_group_on():
    once = [train_group_bandit(inner_updates=1, lr=0.9, clip=clip) for clip in (0.05, 0.9)]
    twice = [train_group_bandit(inner_updates=2, lr=0.9, clip=clip) for clip in (0.05, 0.9)]
    assert torch.equal(*once)
    assert (twice[0] - twice[1]).abs().max() > 0.01


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), scale=st.integers(1, 8), shift=st.integers(-8, 8))
def test_without_std_eps_rewards_count_only_up_to_an_affine_map(seed, scale, shift):
    # Whole rewards, so that the map rounds nothing.
    rewards = [3.0, -2.0, 5.0, 0.0]
    mapped = [scale * reward + shift for reward in rewards]
    options = {"seed": seed, "steps": 5, "std_eps": 0.0}
    history = train_group_bandit(rewards=rewards, **options)
    close(train_group_bandit(rewards=mapped, **options), history)
    close(history.sum(-1), np.ones(5))


# ---------------------------------------------------------------- many at once


def test_many_runs_at_once_are_the_same_runs_one_by_one():
    runs = [
        BanditSettings(steps=12, **options)
        for options in [
            {"seed": 1},
            {"seed": 2, "group_size": 2},
            {"seed": 1, "beta": 0.5, "lr": 0.3},
            {"seed": 9, "clip": 0.05, "lr": 0.9},
            {"seed": 9, "clip": 0.5, "lr": 0.9},
            {"seed": 3, "inner_updates": 5},
            {"seed": 4, "std_eps": 1.0},
            {"seed": 5, "rewards": [1, 0, 0, 2]},
            {"seed": 1},
        ]
    ]
    together = train_group_bandits(runs)
    assert together.shape == (9, 12, 4)
    assert together.dtype == torch.float64
    for run, history in zip(runs, together, strict=True):
        close(train_group_bandit(**dataclasses.asdict(run)), history)
    close(together, [plain(run) for run in runs])


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda rewards: np.array(rewards, dtype=np.float32)])
def test_rewards_may_come_in_any_array_and_a_run_is_float64(kind):
    rewards = (0.5, -1.0, 2.0)  # exact in float32
    run = BanditSettings(rewards=kind(rewards), steps=4)
    assert run == BanditSettings(rewards=rewards, steps=4)
    assert hash(run) == hash(BanditSettings(rewards=rewards, steps=4))
    close(train_group_bandit(rewards=kind(rewards), steps=4), plain(run))


def test_settings_and_the_one_run_function_have_the_same_names_and_defaults():
    parameters = inspect.signature(train_group_bandit).parameters.values()
    assert {p.name: p.default for p in parameters} == dataclasses.asdict(BanditSettings())


def test_training_works_where_gradients_are_switched_off():
    with torch.no_grad():
        assert torch.equal(train_group_bandit(steps=3), train_group_bandit()[:3])


def test_the_benchmark_compares_the_three_ways_and_prints_two_ratios(capsys):
    # Small, so that it is the script that is tested and not the machine; the ratios themselves are not asserted.
    script = runpy.run_path(str(Path(__file__).resolve().parent.parent / "benchmarks" / "bandit_speed.py"))
    script["main"](["--rounds", "1", "--seeds", "2", "--steps", "3"])
    agreement, *ratios = capsys.readouterr().out.splitlines()
    assert agreement == "10 runs of 3 steps; policies agree to 1e-09 at every step"
    names = "train_group_bandit, one by one", "plain NumPy loop, one by one"
    for name, line in zip(names, ratios, strict=True):
        assert re.fullmatch(rf"{name} takes \d+\.\d × the time of train_group_bandits, all at once", line)


def test_the_benchmark_times_nothing_when_the_ways_disagree(monkeypatch):
    script = runpy.run_path(str(Path(__file__).resolve().parent.parent / "benchmarks" / "bandit_speed.py"))
    right = plain_bandit.run
    monkeypatch.setattr(plain_bandit, "run", lambda **options: right(**options) + 1e-6)
    with pytest.raises(SystemExit, match="1e-06 apart in probability"):
        script["main"](["--rounds", "1", "--seeds", "1", "--steps", "2"])


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0"),
        ({"group_size": 1}, "group_size must be a whole number of at least 2; got 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"seed": 1.5}, "seed must be a whole number of at least 0; got 1.5"),
        ({"inner_updates": 0}, "inner_updates must be a whole number of at least 1; got 0"),
        ({"rewards": (0.0, math.nan)}, "rewards must be finite; got nan"),
        ({"rewards": (1.0,)}, r"rewards must .* at least 2 actions; got \(1.0,\)"),
        ({"rewards": ((1.0, 2.0),)}, "rewards must .* at least 2 actions"),
        ({"rewards": 1.0}, "rewards must .* at least 2 actions; got 1.0"),
        ({"beta": -0.1}, "beta must be at least 0; got -0.1"),
        ({"lr": 0.0}, "lr must be greater than 0; got 0.0"),
        ({"clip": 0.0}, "clip must lie strictly between 0 and 1; got 0.0"),
        ({"clip": 1.2}, "clip must lie strictly between 0 and 1; got 1.2"),
        ({"std_eps": -1e-4}, "std_eps must be at least 0; got -0.0001"),
    ],
)
def test_refuses(options, complaint):
    for call in (BanditSettings, train_group_bandit):
        with pytest.raises(ValueError, match=complaint):
            call(**options)


def test_refuses_runs_that_disagree_in_steps_or_actions():
    with pytest.raises(ValueError, match=r"runs must agree in \(steps, .*got \[\(3, 4\), \(5, 4\)\]"):
        train_group_bandits([BanditSettings(steps=5), BanditSettings(steps=3)])
    with pytest.raises(ValueError, match=r"runs must agree .*got \[\(80, 2\), \(80, 4\)\]"):
        train_group_bandits([BanditSettings(), BanditSettings(rewards=(0.0, 1.0))])


def test_refuses_no_runs():
    with pytest.raises(ValueError, match=r"runs must hold at least one BanditSettings; got \[\]"):
        train_group_bandits([])


def test_a_step_so_large_that_a_ratio_overflows_is_an_error_and_not_a_number():
    with pytest.raises(ValueError, match=r"exp\(logp_ref - logp\) must fit"):
        train_group_bandit(lr=1e6, steps=5)
