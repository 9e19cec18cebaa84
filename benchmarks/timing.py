"""Timing side by side: contenders take turns, so that a busy machine slows all of them alike.

Seconds are processor seconds of this process. With one thread they are the wall clock's on an idle machine, and on a
busy one they leave out the time in which others ran.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable


def take_turns(contenders: dict[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Median processor seconds of each contender, after one warm-up each; in every round each runs once."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            started = time.process_time()
            run()
            seconds[name].append(time.process_time() - started)
    return {name: statistics.median(measured) for name, measured in seconds.items()}


def show(title: str, medians: dict[str, float], *, wanted: float) -> None:
    """One line: how many times longer the first contender takes than the second."""
    (slow_name, slow), (fast_name, fast) = medians.items()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(
        f"{title}: {slow_name} {slow * 1e3:.1f} ms, {fast_name} {fast * 1e3:.1f} ms, "
        f"ratio {slow / fast:.1f} (wanted: at least {wanted:g}; load {load:.1f})"
    )
