"""How much faster many bandits at once are than the same runs one after another: `python benchmarks/bandit_speed.py`.

Ten seeds of each of five settings are trained three ways: all in one call of `train_group_bandits`, one call of
`train_group_bandit` a run, and a plain NumPy loop a run. All three must give the same policies at every step before
anything is timed. Each ratio is the median of the ratios of rounds that time all three, since a machine's speed drifts.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from labsrc.bandit import BanditSettings, train_group_bandit, train_group_bandits

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
import plain_bandit

AGREEMENT = 1e-9  # in probability: far above rounding, far below one different draw
ROWS = ({}, {"group_size": 2}, {"rewards": (1.0,) * 4}, {"rewards": (-0.2, 0.3, 0.31, 0.0)}, {"beta": 0.5})


def ways(runs: Sequence[BanditSettings]) -> dict[str, Callable[[], np.ndarray]]:
    """The three ways to train the same runs; each returns policies (R, steps, K)."""
    options = [dataclasses.asdict(run) for run in runs]
    return {
        "train_group_bandits, all at once": lambda: train_group_bandits(runs).numpy(),
        "train_group_bandit, one by one": lambda: torch.stack([train_group_bandit(**o) for o in options]).numpy(),
        "plain NumPy loop, one by one": lambda: np.stack([plain_bandit.run(**o) for o in options]),
    }


def seconds(function: Callable[[], np.ndarray]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Check that the three ways agree, time them, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median is printed")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each of the five settings")
    parser.add_argument("--steps", type=int, default=80, help="groups sampled by a run")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # tensors this small are slower on more

    runs = [BanditSettings(seed=seed, steps=options.steps, **row) for row in ROWS for seed in range(options.seeds)]
    trained = ways(runs)
    results = [train() for train in trained.values()]
    apart = max(np.abs(result - results[0]).max() for result in results[1:])
    if not apart <= AGREEMENT:
        sys.exit(f"the three ways are {apart:.3g} apart in probability; at most {AGREEMENT:g} is rounding")
    print(f"{len(runs)} runs of {options.steps} steps; policies agree to {AGREEMENT:g} at every step")

    rounds = [[seconds(train) for train in trained.values()] for _ in range(options.rounds)]
    first, *others = trained
    for index, name in enumerate(others, start=1):
        ratio = statistics.median(times[index] / times[0] for times in rounds)
        print(f"{name} takes {ratio:.1f} × the time of {first}")


if __name__ == "__main__":
    main()
