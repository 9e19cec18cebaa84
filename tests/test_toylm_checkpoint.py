"""A run killed at any moment and resumed is bit-equal to one that was never interrupted."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import killed_runs
import pytest
import torch

from labsrc import toylm
from labsrc.toylm import checkpoint, records, training


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The final state of each method's run, through a file like the resumed ones."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    states = {}
    for method, settings in killed_runs.SETTINGS.items():
        path = tmp_path_factory.mktemp(method) / "run.ckpt"
        toylm.train(settings, save_to=path)
        states[method] = state_of(path, settings)
    torch.set_num_threads(threads)
    return states


def state_of(path, settings):
    return checkpoint.load(path, settings=records.settings_to_dict(settings))


def assert_same(one, other, place="state"):
    """Equal to the last bit, however deep."""
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), place
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_same(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{place}[{index}]")
    else:
        assert one == other, place


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of the checkpoints that killed runs ended with, and how many children each job lost."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, killed_runs.__file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="killing forked runs needs os.fork")
@pytest.mark.parametrize("job", killed_runs.JOBS)
def test_a_run_that_was_killed_ends_as_if_it_never_was(job, killed, uninterrupted):
    folder, lost = killed
    method, _ = killed_runs.JOBS[job]
    assert lost[job] >= 5, "hardly anything was killed, so hardly anything was tested"
    assert_same(state_of(folder / job, killed_runs.SETTINGS[method]), uninterrupted[method])
    assert not (folder / f".{job}.part").exists()


@pytest.mark.parametrize("method", killed_runs.SETTINGS)
@pytest.mark.parametrize("stop", [0, 1, 5])
def test_a_trainer_put_together_from_a_state_goes_on_bit_for_bit(method, stop):
    settings = killed_runs.SETTINGS[method]
    whole, first = toylm.train(settings), toylm.new_trainer(settings)
    for _ in range(stop):
        first.step()
    second = toylm.new_trainer(settings)
    second.load_state(first.state())
    while not second.finished:
        second.step()
    assert_same(second.state(), whole.state())


def test_a_finished_run_is_not_run_again(tmp_path):
    settings = toylm.GrpoSettings(steps=2)
    toylm.train(settings, save_to=tmp_path / "run.ckpt")
    seen = []
    again = toylm.train(
        settings, save_to=tmp_path / "run.ckpt", observe=lambda trainer: seen.append(trainer.steps_done)
    )
    assert seen == [2] and again.finished and len(again.groups) == 2


def test_states_are_saved_every_so_many_steps_and_at_the_end(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(training.checkpoint, "save", lambda path, state, settings: saved.append(state["steps_done"]))
    toylm.train(toylm.GrpoSettings(steps=7), save_to=tmp_path / "run.ckpt", save_every=3)
    assert saved == [0, 3, 6, 7]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.ckpt"
    toylm.train(toylm.GrpoSettings(steps=1), save_to=path)
    return path


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[: len(c) // 2], lambda c: c[:-9] + b"x" + c[-8:]])
def test_a_damaged_file_is_refused(damage, saved):
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.ckpt' must be a whole checkpoint; .* damaged"):
        toylm.train(toylm.GrpoSettings(steps=1), save_to=saved)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip file", b'{"format": "labsrc-record-1"}'])
def test_a_foreign_file_is_refused_and_left_alone(content, saved):
    saved.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.ckpt' must be a labsrc checkpoint; it begins with"):
        toylm.train(toylm.GrpoSettings(steps=1), save_to=saved)
    assert saved.read_bytes() == content


def test_a_checkpoint_of_other_settings_is_refused_and_says_which(saved):
    other = replace(toylm.GrpoSettings(steps=1), beta=0.5)
    with pytest.raises(ValueError, match=r"different are beta: 0.04 there, 0.5 here"):
        toylm.train(other, save_to=saved)
    with pytest.raises(ValueError, match="method: 'grpo' there, 'rloo' here"):
        toylm.train(toylm.RlooSettings(steps=1), save_to=saved)
