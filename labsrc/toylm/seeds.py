"""One method on many seeds, and what a single seed of each of two methods would have said (chapter 8)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import joblib

from labsrc import checks
from labsrc.toylm import exact_policy, training
from labsrc.toylm.settings import TrainingSettings
from labsrc.toylm.trainer import Cost


def final_reward(settings: TrainingSettings) -> float:
    """E[r] under the policy at the end of a run, exactly; greedy reward for a task too large to list."""
    trainer = training.train(settings, keep_groups=False)
    found = training.evaluate(trainer.policy, trainer.reference, settings.task)
    return found["greedy_reward"] if found["expected_reward"] is None else found["expected_reward"]


def over_seeds(settings: TrainingSettings, seeds: Sequence[int]) -> list[float]:
    """`final_reward` for each seed, in their order.

    The runs go through joblib: one after another by default, elsewhere under `joblib.parallel_config(backend=...)`;
    the numbers are the same. Raises ValueError for no seeds, or one that the settings refuse.
    """
    if not seeds:
        raise ValueError(f"seeds must be at least one; got {seeds!r}")
    runs = [replace(settings, seed=checks.integer_at_least("seeds", seed, 0)) for seed in seeds]
    return joblib.Parallel()(joblib.delayed(final_reward)(run) for run in runs)


def on_local_cluster(settings: TrainingSettings, seeds: Sequence[int], *, workers: int = 2) -> list[float]:
    """`over_seeds` on a Dask cluster of `workers` processes of this machine, started for it and closed after it.

    Raises ValueError as `over_seeds` does, or for fewer than one worker. On a cluster of many machines only the
    client's address is another one.
    """
    from dask.distributed import Client, LocalCluster

    checks.integer_at_least("workers", workers, 1)
    # Port 0 is any that is free. Without an address the dashboard asks for 8787, and warns where that is taken.
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": logging.ERROR}
    with (
        _only_errors("distributed"),
        LocalCluster(n_workers=workers, threads_per_worker=1, **options) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        return over_seeds(settings, seeds)


@contextmanager
def _only_errors(name: str) -> Iterator[None]:
    # A busy machine takes its time to end a worker, and Dask says so after it has set its own level back.
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def cost_to_reach(settings: TrainingSettings, reward: float) -> Cost | None:
    """What a run has spent when E[r] is first at least `reward`, looked at exactly after each step; None if never.

    Looking is not counted. Raises ValueError for a reward that is not finite, or a task too large to list.
    """
    checks.number("reward", reward)
    trainer = training.new_trainer(settings)
    trainer.keep_groups = False
    while exact_policy.expected_reward(trainer.policy, settings.task).item() < reward:
        if trainer.finished:
            return None
        trainer.step()
    return trainer.cost


def chance_of_reversal(first: Any, second: Any) -> float:
    """How often one run of each ranks two methods the other way round than their means do; a tie counts one half.

    first, second: (N,) and (M,) results. All N·M pairs are compared: with independent seeds this is the unbiased
    estimate of that probability, the Mann–Whitney statistic over N·M. Raises ValueError for no or non-finite results.
    """
    first, second = checks.finite("first", first), checks.finite("second", second)
    gaps = (first.flatten()[:, None] - second.flatten()) * (1.0 if first.mean() >= second.mean() else -1.0)
    return ((gaps < 0).double() + 0.5 * (gaps == 0).double()).mean().item()


def standard_error(results: Any) -> float:
    """Sample deviation over √N: how far the mean of N runs is, typically, from that of endlessly many.

    results: (N,), N ≥ 2. Raises ValueError for fewer.
    """
    results = checks.finite("results", results)
    if results.numel() < 2:
        raise ValueError(f"results must be at least two; got {results.numel()}")
    return results.std(correction=1).item() / results.numel() ** 0.5
