from dataclasses import replace

import pytest
import torch

from labsrc import toylm
from labsrc.toylm import sweep

ENDING = toylm.FirstToken(eos_token=2, max_new_tokens=3, prompts=((1, 3), (2, 5), (4, 4)))
BASE = toylm.GrpoSettings(task=ENDING, prompts_per_step=2, group_size=8, steps=2, lr=0.1)


def alone(settings):
    """The curves of one run by itself, and its final weights."""
    seen = []

    def look(trainer):
        found = toylm.evaluate(trainer.policy, trainer.reference, settings.task)
        seen.append((found["expected_reward"], found["sequence_kl"]))

    trainer = toylm.train(settings, observe=look)
    return [list(curve) for curve in zip(*seen, strict=True)], trainer


@pytest.mark.parametrize("name", ["grpo", "bnpo", "dapo", "dr_grpo", "gspo", "luspo", "cispo", "sapo", "vespo"])
def test_each_run_of_a_sweep_is_the_run_it_would_be_alone(name):
    runs = sweep.grid(replace(BASE, loss=name), beta=(0.0, 0.2), lr=(0.05, 0.3), seed=(1, 2))
    runs[3] = replace(runs[3], model=toylm.ModelSettings(seed=9))
    found = sweep.train_sweep(runs)
    for index in (3, 6):
        (reward, kl), trainer = alone(runs[index])
        assert found.expected_reward[index].tolist() == pytest.approx(reward, rel=1e-9)
        assert found.sequence_kl[index].tolist() == pytest.approx(kl, rel=1e-7, abs=1e-13)
        for curve in ("reward_mean", "zero_variance_share"):
            assert getattr(found, curve)[index].tolist() == pytest.approx([m[curve] for m in trainer.monitors])
    assert not torch.allclose(found.expected_reward[0], found.expected_reward[1])


def test_runs_may_differ_in_loss_and_advantage():
    runs = [
        replace(BASE, seed=5),
        replace(BASE, seed=5, loss="dapo", clip_high=0.28),
        replace(BASE, seed=5, advantage="centered"),
        replace(BASE, seed=5, advantage="batch_standardized"),
    ]
    found = sweep.train_sweep(runs)
    for index, run in enumerate(runs):
        assert found.expected_reward[index].tolist() == pytest.approx(alone(run)[0][0], rel=1e-9)


def test_a_grid_holds_every_combination():
    runs = sweep.grid(BASE, beta=(0.0, 0.1, 0.2), group_size=(4, 8))
    assert [(run.beta, run.group_size) for run in runs] == [(b, g) for b in (0.0, 0.1, 0.2) for g in (4, 8)]


def test_a_result_is_plain_data_with_each_runs_settings():
    data = sweep.train_sweep([BASE, replace(BASE, seed=3)]).to_dict()
    assert [run["settings"]["seed"] for run in data["runs"]] == [47, 3]
    assert len(data["runs"][0]["expected_reward"]) == 3 and len(data["runs"][0]["reward_mean"]) == 2


def test_a_task_too_large_to_enumerate_has_no_exact_curves():
    found = sweep.train_sweep([toylm.GrpoSettings(task=toylm.LengthBonus(), steps=1)])
    assert found.expected_reward is None and found.reward_mean.shape == (1, 1)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "runs must hold at least one"),
        ([replace(BASE, optimizer="adam")], "runs must be GrpoSettings with optimizer sgd"),
        ([toylm.RlooSettings()], "runs must be GrpoSettings"),
        ([BASE, replace(BASE, group_size=4)], r"runs must agree in group_size; got \['4', '8'\]"),
        ([BASE, replace(BASE, model=toylm.ModelSettings(width=8))], "runs must agree in model, but for its seed"),
    ],
)
def test_runs_that_cannot_be_trained_together_are_refused(runs, message):
    with pytest.raises(ValueError, match=message):
        sweep.train_sweep(runs)
