"""The recorded grid: the file in the book against fresh runs, and against the monitors and groups it condenses."""

import math
import random
from pathlib import Path

import pytest
import torch
from tolerances import RTOL

from labsrc import __main__ as command
from labsrc import toylm
from labsrc.toylm import replay
from labsrc.toylm.prefix_table import PrefixTable

FILE = Path(__file__).resolve().parent.parent / "book" / "_static" / "labs" / "replay_runs.js"
CELLS = list(replay.grid())


@pytest.fixture(scope="module")
def runs():
    return replay.read(FILE)


@pytest.mark.parametrize(
    ("method", "chosen"),
    [
        ("grpo", {"group_size": 16, "beta": 0.2, "clip": 0.05}),
        ("rloo", {"group_size": 8, "beta": 0.02}),
        ("ppo", {"group_size": 4, "beta": 1.0, "clip": 0.2}),
    ],
)
def test_a_run_that_adds_in_another_order_writes_the_same(method, chosen, runs, monkeypatch):
    # As on another machine: completions are read one by one, and the last digits before rounding differ.
    monkeypatch.setattr(PrefixTable, "pays", staticmethod(lambda *_: False))
    assert replay.record(method, **chosen) == runs[replay.cell_name(method, chosen)]


def test_the_file_holds_every_cell_and_no_other(runs):
    assert list(runs) == [replay.cell_name(method, chosen) for method, chosen in CELLS]
    assert len(runs) == 4 * 3 * 3 * 2 + 4 * 3 + 3


def test_every_cell_is_that_of_the_settings_as_they_are_now(runs):
    for method, chosen in CELLS:
        assert runs[replay.cell_name(method, chosen)]["call"] == replay.call(method, **chosen)


@pytest.mark.parametrize("method", replay.AXES)
def test_cells_trained_again_are_the_recorded_ones(method, runs):
    cells = [chosen for name, chosen in CELLS if name == method]
    for chosen in random.Random(len(method)).sample(cells, 2):
        assert replay.record(method, **chosen) == runs[replay.cell_name(method, chosen)]


def test_what_is_counted_is_kept_whole_so_that_no_half_can_fall_to_either_side(runs):
    shares = [runs[name][curve] or [] for name in runs for curve in ("batch_reward", "clip_share", "constant_share")]
    assert all((128 * share).is_integer() for curve in shares for share in curve)


@pytest.mark.parametrize("method", replay.AXES)
def test_the_call_makes_the_settings(method):
    chosen = {axis: replay.VALUES[axis][1] for axis in replay.AXES[method]}
    made = eval(replay.call(method, **chosen), {"toylm": toylm})  # our own text
    assert made == replay.settings(method, **chosen)
    assert made.method == method and made.beta == chosen["beta"]
    for name in ("clip_low", "clip_high"):
        assert getattr(made, name, None) == chosen.get("clip")


def test_what_is_kept_is_what_the_trainer_says():
    chosen = {"group_size": 4, "beta": 0.2, "clip": 0.05}
    for method, per_token in (("grpo", False), ("ppo", True)):
        kept, trainer = replay.record(method, **chosen), toylm.train(replay.settings(method, **chosen))
        last = toylm.evaluate(trainer.policy, trainer.reference, replay.TASK)
        assert kept["expected_reward"][-1] == pytest.approx(last["expected_reward"], abs=5.1e-5)
        assert kept["kl"][-1] == pytest.approx(last["sequence_kl"], abs=5.1e-5)
        assert kept["kl"][0] == 0 and len(kept["kl"]) == replay.STEPS + 1
        for step, (shown, group) in enumerate(zip(trainer.monitors, trainer.groups, strict=True)):
            assert kept["batch_reward"][step] == pytest.approx(shown["reward_mean"], rel=RTOL)
            clipped = shown["clip_share_low"] + shown["clip_share_high"]
            assert kept["clip_share"][step] == pytest.approx(clipped, rel=RTOL)
            assert kept["constant_share"][step] == sum(group["zero_variance"]) / 4
            assert kept["completions"][step].split() == ["".join(map(str, c)) for c in group["completions"][:4]]
            first = torch.tensor(group["advantages"][:4] if per_token else group["advantages"][0]).flatten()
            assert kept["advantages"][step] == pytest.approx(first.tolist(), abs=5.1e-4)


def test_the_optimum_lifts_the_rewarded_token_by_the_exponential_of_one_over_beta(runs):
    reference = toylm.new_trainer(replay.settings("dpo", beta=1.0)).reference
    logits, _ = reference(replay.TASK.prompt_tokens)
    start = logits[:, -1].softmax(-1)[:, replay.TASK.target]
    for beta in replay.BETAS:
        lifted = start * math.exp(1 / beta)
        assert runs[f"dpo {beta}"]["optimum"] == pytest.approx(
            (lifted / (lifted + 1 - start)).mean().item(), abs=5.1e-5
        )
        assert runs[f"ppo 2 {beta} 0.5"]["optimum"] == runs[f"dpo {beta}"]["optimum"]


def test_what_a_method_does_not_have_is_none(runs):
    assert runs["rloo 4 0.2"]["clip_share"] is None and runs["rloo 4 0.2"]["constant_share"] is not None
    pairs = runs["dpo 0.2"]
    assert {name for name, value in pairs.items() if value is None} == {
        "batch_reward", "clip_share", "constant_share", "advantages",
    }  # fmt: skip
    assert [text[0] == "6" for text in pairs["completions"][0].split()] == [True, False] * replay.SHOWN_PAIRS


@pytest.mark.parametrize(
    ("method", "chosen", "message"),
    [
        ("sarsa", {"beta": 0.2}, "method must be one of"),
        ("dpo", {"beta": 0.2, "clip": 0.2}, r"dpo takes \['beta'\]; got \['beta', 'clip'\]"),
        ("grpo", {"beta": 0.2, "clip": 0.2}, "grpo takes"),
    ],
)
def test_cells_that_are_none_are_refused(method, chosen, message):
    with pytest.raises(ValueError, match=message):
        replay.settings(method, **chosen)


def test_the_command_writes_a_file_that_reads_back(tmp_path, monkeypatch, capsys):
    few = [("dpo", {"beta": 1.0}), ("rloo", {"group_size": 2, "beta": 0.2})]
    monkeypatch.setattr(replay, "grid", lambda: iter(few))
    path = tmp_path / "runs.js"
    assert command.main(["replay", str(path)]) == 0
    assert "2 runs written" in capsys.readouterr().out
    written = replay.read(path)
    assert written == {replay.cell_name(method, chosen): replay.record(method, **chosen) for method, chosen in few}
    before = path.read_bytes()
    assert command.main(["replay", str(path)]) == 0 and path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["runs.js"]


def test_a_folder_that_is_not_there_and_a_foreign_file_are_refused(tmp_path, capsys):
    assert command.main(["replay", str(tmp_path / "none" / "runs.js")]) == 2
    assert "must be in a folder that exists" in capsys.readouterr().err
    foreign = tmp_path / "foreign.js"
    foreign.write_text("{}")
    with pytest.raises(ValueError, match="must be a file written by"):
        replay.read(foreign)
