"""Lab *replay* against runs trained here, and what its texts claim of them."""

import math

import pytest
import torch
from tolerances import RTOL

from labsrc import labs, toylm
from labsrc.labs.controls import Choice
from labsrc.toylm import replay as recording


def test_the_default_state_is_step_seven_of_a_run_trained_here():
    result = labs.replay().result
    trainer = toylm.train(recording.settings("grpo", group_size=16, beta=0.2, clip=0.2))
    shown, group = trainer.monitors[6], trainer.groups[6]
    assert result["clip_share_now"] == pytest.approx(shown["clip_share_low"] + shown["clip_share_high"], rel=RTOL)
    assert result["batch_reward_now"] == pytest.approx(shown["reward_mean"], rel=RTOL)
    assert result["completion"] == [" ".join(map(str, tokens)) for tokens in group["completions"][:16]]
    assert result["reward"] == group["rewards"][0]
    assert result["advantage_first"] == result["advantage_second"] == pytest.approx(group["advantages"][0], abs=5.1e-4)
    last = toylm.evaluate(trainer.policy, trainer.reference, recording.TASK)
    assert result["reward_end"] == pytest.approx(last["expected_reward"], abs=5.1e-5)
    assert result["kl_end"] == pytest.approx(last["sequence_kl"], abs=5.1e-5)


@pytest.mark.parametrize("preset", labs.replay.presets, ids=lambda preset: preset.label)
def test_the_python_it_gives_prints_the_step_it_shows(preset, capsys):
    view = labs.replay(**preset.state)
    names: dict = {}
    exec(view.python(), names)  # our own text
    trainer, step = names["trainer"], view.state["step"] - 1
    assert trainer.settings.method == view.state["method"] and trainer.settings.beta == float(view.state["beta"])
    if view.state["method"] != "dpo":
        assert view.result["batch_reward_now"] == pytest.approx(trainer.monitors[step]["reward_mean"], rel=RTOL)
        assert trainer.settings.group_size == int(view.state["group_size"]) == len(view.result["reward"])
    assert str(trainer.monitors[step]) in capsys.readouterr().out


@pytest.mark.parametrize(("method", "idle"), [("rloo", ["clip"]), ("dpo", ["clip", "group_size"])])
def test_a_setting_that_a_method_does_not_have_changes_nothing_and_the_lab_says_so(method, idle):
    results = [
        labs.replay(method=method, **{key: value}).result
        for key in idle
        for value in next(control for control in labs.replay.controls if control.key == key).options
    ]
    assert all(str(result) == str(results[0]) for result in results)
    assert math.isnan(results[0]["clip_share_now"])
    words = labs.replay(method=method).words()
    assert "ε clip change" in words and ("G and" in words) == ("group_size" in idle)
    assert "changes nothing" in results[0]["clip_note"]


def test_dpo_shows_pairs_and_neither_advantages_nor_groups():
    result = labs.replay(method="dpo", step=20).result
    assert result["completion"][:2] == ["6 5 chosen", "3 5 rejected"] and result["reward"] == [1.0, 0.0] * 4
    assert all(math.isnan(value) for value in [*result["advantage_first"], *result["constant_share"]])
    assert "no groups" in result["constant_note"]


def test_ppo_gives_each_token_its_own_advantage():
    trainer = toylm.train(recording.settings("ppo", group_size=16, beta=0.2, clip=0.2))
    result = labs.replay(method="ppo", step=8).result
    shown = torch.tensor([result["advantage_first"], result["advantage_second"]])
    torch.testing.assert_close(shown.T, torch.tensor(trainer.groups[7]["advantages"][:16]), rtol=0, atol=5.1e-4)
    first, second = shown.abs().mean(1)
    assert 0.5 < second / first < 0.6  # "little more than half as large"


def test_what_the_answer_says_is_what_the_runs_end_in():
    grpo, rloo = (labs.replay(beta="1.0", method=method).result for method in ("grpo", "rloo"))
    assert [f"{run['reward_end']:.2f}" for run in (grpo, rloo)] == ["0.60", "0.23"]
    assert f"{grpo['optimum']:.2f}" == "0.26" and f"{grpo['expected_reward'][0]:.2f}" == "0.11"
    assert "GRPO at 0.60, RLOO at 0.23" in labs.replay.answer and "earns 0.26, the start 0.11" in labs.replay.prompt


def test_what_the_presets_say_holds():
    usual, narrow = labs.replay().result, labs.replay(clip="0.05", step=12).result
    assert {share.index(max(share)) + 1 for share in [usual["clip_share"]]} == {7}
    assert sorted(usual["clip_share"])[-2:] == [usual["clip_share"][5], usual["clip_share"][6]]
    assert round(narrow["clip_share_now"], 2) == 0.74 and narrow["clip_share_now"] == max(narrow["clip_share"])
    passed = [next(s for s, r in enumerate(run["expected_reward"]) if r >= 0.5) for run in (usual, narrow)]
    assert passed[1] - passed[0] == 5
    pairs = labs.replay(group_size="2", step=1).result
    assert pairs["constant_share_now"] == 1 and pairs["batch_reward_now"] == 0
    assert pairs["expected_reward"][1] == pairs["expected_reward"][0] and pairs["kl"][1] == 0


def test_a_constant_group_is_said_to_bring_no_advantage():
    view = labs.replay(group_size="2", step=1)
    assert view.result["silent"] and set(view.result["advantage_first"]) == {0.0}
    assert "each advantage is 0" in view.words()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"method": "sarsa"}, "method must be one of"),
        ({"beta": "0.3"}, "beta must be one of"),
        ({"step": 0}, "step must be from 1 to 20; got 0"),
        ({"step": 2.5}, "step must be a whole number"),
    ],
)
def test_settings_off_the_grid_are_refused_by_name(state, message):
    with pytest.raises(ValueError, match="^" + message):
        labs.replay(**state)


def test_the_options_of_the_controls_are_the_grid():
    options = {control.key: list(control.options) for control in labs.replay.controls if isinstance(control, Choice)}
    assert options.pop("method") == list(recording.AXES)
    assert options == {axis: [str(value) for value in values] for axis, values in recording.VALUES.items()}
    # Whole-number keys come first in a page: those of one control are all of that kind or none is.
    for keys in options.values():
        assert len({key.isdigit() for key in keys}) == 1
