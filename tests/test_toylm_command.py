"""python -m labsrc: what it prints, writes and refuses."""

import json
import os
import signal
import subprocess
import sys

import pytest

from labsrc import __main__ as command
from labsrc.toylm import records


@pytest.mark.parametrize("method", ["grpo", "rloo", "reinforce", "ppo", "dpo"])
def test_a_run_prints_its_steps_and_its_record_verifies(method, tmp_path, capsys):
    path = tmp_path / "run.json"
    assert command.main([method, "--steps", "2", "--record", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "step    2/2" in printed and "expected reward, exact" in printed and str(path) in printed
    assert command.main(["verify", str(path)]) == 0
    assert "all agree" in capsys.readouterr().out
    assert command.main(["verify", "--rerun", str(path)]) == 0


def test_settings_reach_the_run(tmp_path):
    path = tmp_path / "run.json"
    arguments = "--steps 1 --group-size 4 --beta 0.5 --loss dapo --clip-high 0.3 --seed 3 --lr 0.1 --optimizer adam"
    assert command.main(["grpo", *arguments.split(), "--record", str(path)]) == 0
    settings = records.load(path).settings
    assert (settings["group_size"], settings["beta"], settings["loss"], settings["clip_high"]) == (4, 0.5, "dapo", 0.3)
    assert (settings["seed"], settings["lr"], settings["optimizer"]) == (3, 0.1, "adam")


def test_verify_says_what_disagrees(tmp_path, capsys):
    path = tmp_path / "run.json"
    command.main(["grpo", "--steps", "1", "--record", str(path)])
    data = json.loads(path.read_text())
    data["groups"][0]["rewards"][0][3] += 1
    path.write_text(json.dumps(data))
    capsys.readouterr()
    assert command.main(["verify", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "groups[0].rewards[0][3]: recorded" in printed and "disagree" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grpo", "--group-size", "1"], "group_size must be a whole number of at least 2; got 1"),
        (["grpo", "--clip-low", "1.2"], "clip_low must lie strictly between 0 and 1; got 1.2"),
        (["dpo", "--beta", "0"], "beta must be greater than 0"),
        (["grpo", "--record", "nowhere/run.json"], "FILE must be in a folder that exists; got 'nowhere/run.json'"),
        (["verify", "missing.json"], "No such file"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_teaches(capsys):
    for arguments, words in (
        (["--help"], ["verify", "--record", "reward 1 when"]),
        (["grpo", "--help"], ["clip", "16"]),
    ):
        with pytest.raises(SystemExit, match="0"):
            command.main(arguments)
        printed = capsys.readouterr().out
        assert all(word in printed for word in words)


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert command.main(["grpo", "--steps", "2"]) == 0
    shown = capsys.readouterr()
    assert "2/2" in shown.err and "█" in shown.err and "step    2" not in shown.out


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to another process")
def test_a_stopped_run_says_so_in_its_record_and_goes_on_from_its_checkpoint(tmp_path):
    record, state = tmp_path / "run.json", tmp_path / "run.ckpt"
    arguments = ["grpo", "--steps", "20000", "--record", str(record), "--checkpoint", str(state)]
    with subprocess.Popen([sys.executable, "-m", "labsrc", *arguments], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # one step is done
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    assert process.returncode == 130
    stopped = records.load(record)
    assert (stopped.exit_status, stopped.error) == (130, "stopped by the user")
    assert 1 <= stopped.steps_done < 20000
    assert command.main(["verify", str(record)]) == 0
