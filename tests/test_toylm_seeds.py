"""Many seeds: the same numbers wherever they run, and the chance that two seeds mislead."""

import contextlib
import math
import socket

import joblib
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labsrc import toylm
from labsrc.toylm import seeds

SETTINGS = toylm.GrpoSettings(steps=3, lr=0.1)
RESULTS = st.lists(st.integers(-5, 5), min_size=1, max_size=6)


def test_each_seed_is_the_run_of_that_seed():
    found = seeds.over_seeds(SETTINGS, [3, 1])
    for seed, reward in zip((3, 1), found, strict=True):
        trainer = toylm.train(toylm.GrpoSettings(steps=3, lr=0.1, seed=seed))
        assert reward == toylm.evaluate(trainer.policy, trainer.reference, SETTINGS.task)["expected_reward"]
    assert found[0] != found[1]


def test_a_task_too_large_to_list_is_judged_by_its_greedy_answers():
    settings = toylm.GrpoSettings(task=toylm.LengthBonus(), steps=1)
    trainer = toylm.train(settings)
    assert seeds.final_reward(settings) == toylm.training.greedy_reward(trainer.policy, settings.task)


def test_another_backend_gives_the_same_bits():
    serial = seeds.over_seeds(SETTINGS, range(4))
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert seeds.over_seeds(SETTINGS, range(4)) == serial


def test_a_local_dask_cluster_gives_the_same_bits():
    pytest.importorskip("dask.distributed", reason="dask is not installed: pip install -r requirements.txt")
    serial = seeds.over_seeds(SETTINGS, range(4))
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # in use already: as good
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        # Another cluster's dashboard stands at its usual port; a warning about that would be an error here.
        assert seeds.on_local_cluster(SETTINGS, range(4), workers=2) == serial
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1; got 0"):
        seeds.on_local_cluster(SETTINGS, range(4), workers=0)


def test_the_cost_is_counted_until_the_reward_is_there():
    settings = toylm.GrpoSettings(steps=60, lr=0.3)
    cost = seeds.cost_to_reach(settings, 0.5)
    steps = cost.optimizer_steps // settings.inner_updates
    assert 0 < steps < 60 and cost.generated_tokens == steps * 16 * 2
    ends = [seeds.final_reward(toylm.GrpoSettings(steps=count, lr=0.3)) for count in (steps - 1, steps)]
    assert ends[0] < 0.5 <= ends[1]
    assert seeds.cost_to_reach(settings, 0.0).generated_tokens == 0
    assert seeds.cost_to_reach(toylm.GrpoSettings(steps=1), 0.9) is None


@given(RESULTS, RESULTS)
def test_the_chance_is_a_count_of_pairs(first, second):
    sign = 1 if sum(first) / len(first) >= sum(second) / len(second) else -1
    wrong = sum((sign * (a - b) < 0) + 0.5 * (a == b) for a in first for b in second)
    assert math.isclose(seeds.chance_of_reversal(first, second), wrong / (len(first) * len(second)), abs_tol=1e-12)


def test_for_normal_results_it_is_the_closed_form():
    """P(a < b) = Φ(−d/√2) for two normals of deviation 1 whose means are d apart."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 4000, generator=generator, dtype=torch.float64)
    expected = 0.5 * math.erfc(0.5 / math.sqrt(2) / math.sqrt(2))
    # Its standard error is below 0.006 with this many on both sides.
    assert abs(seeds.chance_of_reversal(first + 0.5, second) - expected) < 0.02


def test_a_standard_error_by_hand():
    assert math.isclose(seeds.standard_error([1.0, 3.0, 2.0]), 1 / math.sqrt(3))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="seeds must be at least one"):
        seeds.over_seeds(SETTINGS, [])
    with pytest.raises(ValueError, match="seeds must be a whole number of at least 0; got -1"):
        seeds.over_seeds(SETTINGS, [-1])
    with pytest.raises(ValueError, match="results must be at least two; got 1"):
        seeds.standard_error([1.0])
    with pytest.raises(ValueError, match="reward must be"):
        seeds.cost_to_reach(SETTINGS, math.nan)
    with pytest.raises(ValueError, match="first must"):
        seeds.chance_of_reversal([math.nan], [1.0])
