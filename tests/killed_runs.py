"""A program for test_toylm_checkpoint: run a method in child processes that are killed, until one comes to its end.

`python killed_runs.py FOLDER` runs every job of `JOBS`, each with a checkpoint of its own in the folder, and prints
how many children of each were killed. A job names a method, and either a seed (children are killed after a random
time) or a place inside a save (children kill themselves there). torch is imported once; the children are forks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from labsrc import toylm
from labsrc.toylm import atomic

TASK = toylm.FirstToken(eos_token=2, max_new_tokens=3, prompts=((1, 3), (2, 5), (4, 4)))
COMMON = {"task": TASK, "optimizer": "adam", "lr": 0.01, "steps": 12}
SETTINGS = {
    "grpo": toylm.GrpoSettings(prompts_per_step=2, **COMMON),
    "ppo": toylm.PpoSettings(**COMMON),
    "dpo": toylm.DpoSettings(pairs=(), sampled_pairs=20, batch_size=5, beta=0.1, **COMMON),
}
PLACES = ("before the write", "half written", "before the flush", "before the rename", "after the rename")
JOBS = {f"{method} at random": (method, seed) for seed, method in enumerate(SETTINGS)}
JOBS |= {f"grpo {place}": ("grpo", place) for place in PLACES}


def die() -> None:
    """The end, without any chance to clean up."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_inside_save(place: str, save: int) -> None:
    """Arrange that this process is killed at `place` of its save number `save`."""
    saves = 0
    write, fsync, replace = atomic.write_bytes, os.fsync, os.replace

    def counted_write(path, content):
        nonlocal saves
        saves += 1
        if saves == save and place == "before the write":
            die()
        if saves == save and place == "half written":
            with open(path.parent / f".{path.name}.part", "wb") as file:
                file.write(content[: len(content) // 2])
                file.flush()
                die()
        write(path, content)

    def counted_fsync(handle):
        if saves == save and place == "before the flush":
            die()
        fsync(handle)

    def counted_replace(source, target):
        if saves == save and place == "before the rename":
            die()
        replace(source, target)
        if saves == save and place == "after the rename":
            die()

    atomic.write_bytes, os.fsync, os.replace = counted_write, counted_fsync, counted_replace


def child(method: str, checkpoint: Path, place: str | None, attempt: int) -> int:
    """Fork a child that runs or resumes; returns its process id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            if place is not None:
                die_inside_save(place, save=attempt % 3 + 1)
            toylm.train(SETTINGS[method], save_to=checkpoint)
            status = 0
        finally:
            os._exit(status)
    return process


def run_job(method: str, checkpoint: Path, how: int | str) -> int:
    """Run until a child ends by itself; returns how many did not."""
    at_random = isinstance(how, int)
    draw, longest = random.Random(how), 0.02
    for attempt in range(200):
        process = child(method, checkpoint, None if at_random or attempt >= 6 else how, attempt)
        if at_random:
            time.sleep(draw.uniform(0.0, longest))
            os.kill(process, signal.SIGKILL)
            longest *= 1.08  # sooner or later one gets through
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"{method}, {how}: a child failed"
            return attempt
    raise AssertionError(f"{method}, {how}: no child came to its end")


def main(folder: str) -> None:
    """Run all jobs, after one run that makes torch load what it loads at first use."""
    torch.set_num_threads(1)
    for settings in SETTINGS.values():
        toylm.train(settings)
    print(json.dumps({job: run_job(method, Path(folder) / job, how) for job, (method, how) in JOBS.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
