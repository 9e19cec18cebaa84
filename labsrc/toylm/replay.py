"""Runs over a grid of settings, recorded for a page, which can replay them but not train.

One task of four prompts, one start, one learning rate; the grid is over the method, G, β and the clip radius. What a
method does not have is no axis of its grid: RLOO has no clip, DPO neither a clip nor a group. Numbers are rounded, so
that a run on another machine writes the same file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from labsrc import checks
from labsrc.toylm import atomic, exact_policy, training
from labsrc.toylm.settings import DpoSettings, GrpoSettings, OnlineSettings, PpoSettings, RlooSettings, TrainingSettings
from labsrc.toylm.tasks import FirstToken
from labsrc.toylm.trainer import Trainer

TASK = FirstToken(prompts=((1, 3), (2, 5), (4, 0), (7, 1)))
STEPS, LR, INNER_UPDATES, SAMPLED_PAIRS = 20, 0.1, 3, 64

GROUP_SIZES = (2, 4, 8, 16)
BETAS = (0.02, 0.2, 1.0)
CLIPS = (0.05, 0.2, 0.5)

# The axes that each method has.
AXES = {
    "grpo": ("group_size", "beta", "clip"),
    "rloo": ("group_size", "beta"),
    "ppo": ("group_size", "beta", "clip"),
    "dpo": ("beta",),
}
KINDS = {"grpo": GrpoSettings, "rloo": RlooSettings, "ppo": PpoSettings, "dpo": DpoSettings}
VALUES = {"group_size": GROUP_SIZES, "beta": BETAS, "clip": CLIPS}

# Decimals that hold a share of 4·16·2 tokens whole: with fewer, halves would fall to either side.
SHARES = 7

# Pairs of DPO that are shown: as many completions as the smaller groups have.
SHOWN_PAIRS = 4

HEAD = """\
// Runs of the toy language model over a grid of settings, for the lab "replay".
// Written by: python -m labsrc replay book/_static/labs/replay_runs.js
(() => {
const labs = (window.alignLabs = window.alignLabs || {});
(labs.recordings = labs.recordings || {}).replay =
"""
FOOT = ";\n})();\n"


def grid() -> Iterator[tuple[str, dict[str, float]]]:
    """Every cell: a method, and a value for each of its axes."""
    for method, axes in AXES.items():
        for chosen in itertools.product(*(VALUES[axis] for axis in axes)):
            yield method, dict(zip(axes, chosen, strict=True))


def cell_name(method: str, chosen: dict[str, float]) -> str:
    """The key of a cell in the file: `grpo 16 0.2 0.05`, the method and its values in the order of its axes."""
    return " ".join([method, *(str(chosen[axis]) for axis in AXES[method])])


def options(method: str, **chosen: float) -> dict[str, Any]:
    """The keywords of the settings of one cell; what the method does not have is left out of `chosen`.

    Raises ValueError for an unknown method, or axes that are not the method's.
    """
    checks.one_of("method", method, tuple(AXES))
    if set(chosen) != set(AXES[method]):
        raise ValueError(f"{method} takes {list(AXES[method])}; got {sorted(chosen)}")
    found: dict[str, Any] = {"task": TASK, "steps": STEPS, "lr": LR, "beta": chosen["beta"]}
    if method == "dpo":
        return found | {"pairs": (), "sampled_pairs": SAMPLED_PAIRS, "labels": "higher_reward"}
    found |= {"prompts_per_step": len(TASK.prompts), "group_size": chosen["group_size"]}
    if "clip" in chosen:
        found |= {"inner_updates": INNER_UPDATES, "clip_low": chosen["clip"], "clip_high": chosen["clip"]}
    return found | ({"critic_lr": LR} if method == "ppo" else {})


def settings(method: str, **chosen: float) -> TrainingSettings:
    """The settings of one cell. Raises ValueError as `options` does."""
    keywords = options(method, **chosen)
    return KINDS[method](**keywords)


def call(method: str, **chosen: float) -> str:
    """The cell's settings as Python source, as a reader would type them after `from labsrc import toylm`."""
    written = {**options(method, **chosen), "task": f"toylm.FirstToken(prompts={TASK.prompts})"}
    lines = [f"    {name}={value if name == 'task' else repr(value)},\n" for name, value in written.items()]
    return f"toylm.{KINDS[method].__name__}(\n{''.join(lines)})"


def record(method: str, **chosen: float) -> dict[str, Any]:
    """One cell, trained now. Lists have an entry a step; what a method does not have is None.

    expected_reward, kl: of the policy that samples in a step, exactly, and after the last one (STEPS + 1 entries; kl of
    whole completions, in nats). optimum: E[r] of the policy that maximises E[r] − β·KL. batch_reward, clip_share,
    constant_share: of the step's own groups. completions: those of the first prompt, digits side by side, a space
    between them; for DPO, whose pairs stay, one entry: the first of them, chosen before rejected. advantages: one a
    completion, or one a token for PPO.
    """
    seen: list[tuple[float, float]] = []

    def look(trainer: Trainer) -> None:
        reward = exact_policy.expected_reward(trainer.policy, TASK).item()
        seen.append((reward, exact_policy.sequence_kl(trainer.policy, trainer.reference, TASK).item()))

    trainer = training.train(settings(method, **chosen), observe=look)
    expected_reward, kl = (_rounded(curve, 4) for curve in zip(*seen, strict=True))
    best = exact_policy.optimal_table(trainer.reference, TASK, beta=chosen["beta"])
    optimum = (best * exact_policy.reward_table(TASK)).sum(-1).mean().item()
    found = {"call": call(method, **chosen), "expected_reward": expected_reward, "kl": kl}
    found |= {"optimum": round(optimum, 4)}
    return found | (_groups if isinstance(trainer.settings, OnlineSettings) else _pairs)(trainer)


def _groups(trainer: Trainer) -> dict[str, Any]:
    monitors, groups, count = trainer.monitors, trainer.groups, trainer.settings.group_size
    clipped = trainer.monitors[0]["clip_share_low"] is not None
    advantages = [_first_group(group["advantages"], count) for group in groups]
    return {
        "batch_reward": _rounded([shown["reward_mean"] for shown in monitors], SHARES),
        "clip_share": _rounded([s["clip_share_low"] + s["clip_share_high"] for s in monitors], SHARES)
        if clipped
        else None,
        "constant_share": _rounded([shown["zero_variance_share"] for shown in monitors], SHARES),
        "completions": [_digits(group["completions"][:count]) for group in groups],
        "advantages": [_rounded(values, 3) for values in advantages],
    }


def _first_group(advantages: list[list[float]], group_size: int) -> list[float]:
    # A row is a group, except where every token has its own: then it is a completion.
    whole = len(advantages) == len(TASK.prompts) and len(advantages[0]) == group_size
    return list(advantages[0] if whole else itertools.chain.from_iterable(advantages[:group_size]))


def _pairs(trainer: Trainer) -> dict[str, Any]:
    step = trainer.groups[0]
    sides = zip(step["chosen"][:SHOWN_PAIRS], step["rejected"][:SHOWN_PAIRS], strict=True)
    missing = dict.fromkeys(("batch_reward", "clip_share", "constant_share", "advantages"))
    return {**missing, "completions": [_digits([row for pair in sides for row in pair])]}


def _digits(completions: Sequence[Sequence[int]]) -> str:
    return " ".join("".join(map(str, tokens)) for tokens in completions)


def _rounded(values: Sequence[float], decimals: int) -> list[float]:
    return [round(value, decimals) + 0.0 for value in values]  # no −0


def contents() -> str:
    """The file: a classic script, which a page opened from disk may load, one run a line."""
    runs = {cell_name(method, chosen): record(method, **chosen) for method, chosen in grid()}
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(run, separators=(',', ':'))}" for name, run in runs.items())
    return f"{HEAD}{{\n{lines}\n}}{FOOT}"


def read(path: Path | str) -> dict[str, dict[str, Any]]:
    """The runs in a file that `write` wrote, by `cell_name`. Raises ValueError for any other file."""
    text = Path(path).read_text(encoding="utf-8")
    if not (text.startswith(HEAD) and text.endswith(FOOT)):
        raise ValueError(
            f"{str(path)!r} must be a file written by `python -m labsrc replay`; got another beginning or end"
        )
    return json.loads(text[len(HEAD) : -len(FOOT)])


def write(path: Path | str) -> int:
    """Train every cell and write them all, atomically; returns how many. About a quarter of a minute on one core.

    Raises ValueError for a folder that does not exist, before anything is trained.
    """
    if not Path(path).parent.is_dir():
        raise ValueError(f"FILE must be in a folder that exists; got {str(path)!r}")
    atomic.write_bytes(path, contents().encode())
    return sum(1 for _ in grid())
