"""Lab *bandit* (chapter 3): GRPO on one prompt with four one-token completions, eighty groups from start to end."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labsrc.advantages import is_constant_group
from labsrc.bandit import train_group_bandit
from labsrc.closed_form import optimal_policy
from labsrc.kl import kl_divergence
from labsrc.labs.controls import Column, Preset, Slider, State, Table
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Bars, Curves, Line, Numbers, Sentence, Series, Tile

STEPS = 80
# Probabilities closer than this are called equal: where two actions lead together, rounding must not choose.
_TIED = 1e-9


def compute(state: State) -> dict[str, Any]:
    """The policy after each of 80 groups, the constant groups among them, and the optimum; K = 4 actions.

    state: group_size, beta, clip, lr, inner_updates, seed and rewards (K,), as in `bandit.BanditSettings`. Raises
    ValueError as `bandit.train_group_bandit` does.
    """
    history = _trained(**{**state, "rewards": tuple(state["rewards"])})
    rewards, start = torch.tensor(state["rewards"], dtype=torch.float64), torch.full((4,), 0.25, dtype=torch.float64)
    path = torch.cat([start[None], history])
    p = history[-1]
    top, best = int((p >= p.max() - _TIED).nonzero()[0]), int(rewards.argmax())
    constant = is_constant_group(_group_rewards(path[:-1], rewards, state["group_size"], state["seed"]))
    return {
        "step": list(range(STEPS + 1)),
        **{f"path_{index}": path[:, index] for index in range(4)},
        "p": p,
        "optimum": _optimum(start, rewards, state["beta"]),
        "expected_reward": p @ rewards,
        "expected_reward_start": start @ rewards,
        "kl": kl_divergence(p, start),
        "constant_groups": constant.sum(),
        "constant_share": constant.double().mean(),
        "best": best,
        "best_p": p[best],
        "half_way": path[STEPS // 2, best],
        "top": top,
        "top_p": p[top],
        "flat": bool(rewards.max() == rewards.min()),
        "missed": bool(rewards[top] < rewards.max()),
        "slow": bool(p[best] < 0.9),
    }


@lru_cache(maxsize=512)
def _trained(**settings: Any) -> Tensor:
    """One run, kept: a reader returns to settings, by a preset, by Reset or by the way a handle came."""
    return train_group_bandit(steps=STEPS, **settings)


def _group_rewards(policies: Tensor, rewards: Tensor, group_size: int, seed: int) -> Tensor:
    """The rewards of each step's group (steps, G): the same stream of draws that the training reads."""
    stream = np.random.default_rng(seed)
    drawn = [stream.choice(len(rewards), size=group_size, p=policy) for policy in policies.numpy()]
    return rewards[torch.from_numpy(np.stack(drawn))]


def _optimum(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """What maximises E[r] − β·KL; without a penalty, all mass evenly on the best actions."""
    if beta > 0:
        return optimal_policy(reference, rewards, beta=beta)
    best = (rewards == rewards.max()).double()
    return best / best.sum()


bandit = Lab(
    name="bandit",
    title="A group bandit, trained here",
    lead=(
        "Eighty times: draw G actions, turn their rewards into (r − mean)/(std + 10⁻⁴), take a few clipped steps on "
        "the logits. Policy and reference start uniform."
    ),
    prompt="Rewards are −0.2, 0.3, 1, 0. Lower the best one, c, from 1 to 0.31. What becomes of P(c) after 80 groups?",
    answer=(
        "0.988 instead of 0.991: next to nothing, though E[r] − β·KL has its maximum at P(c) = 0.62. Once a and d are "
        "rare, a group's deviation is as small as the gap of b and c, and dividing by it makes the gap large again."
    ),
    compute=compute,
    controls=(
        Slider("group_size", "G", "group size", 32, 2, 64, step=1, integer=True, format="d", lazy=True),
        Slider("beta", "β", "beta, the price of one nat of KL", 0.02, 0.0, 0.5, lazy=True),
        Slider("clip", "ε clip", "clip radius", 0.2, 0.01, 0.9, lazy=True),
        Slider("lr", "step size", "step size on the logits", 0.18, 0.01, 0.5, log=True, lazy=True),
        Slider(
            "inner_updates",
            "updates",
            "inner updates on each group",
            2,
            1,
            4,
            step=1,
            integer=True,
            format="d",
            lazy=True,
        ),
        Slider("seed", "seed", "seed of the draws", 7, 0, 99, step=1, integer=True, format="d", lazy=True),
        Table(
            row="action",
            columns=(Column("rewards", "reward"),),
            values={"rewards": (-0.2, 0.3, 1.0, 0.0)},
            fewest_rows=4,
            most_rows=4,
            bars=Bars(
                series=(
                    Series("p", "after 80 groups", "policy", "~.3f"),
                    Series("optimum", "optimum of E[r] − β·KL", "optimum", "~.3f"),
                ),
                domain=(0.0, 1.0),
            ),
        ),
    ),
    presets=(
        Preset("Worked case", {}, "Action c has 0.92 after 20 groups. Try other seeds: the path changes a little."),
        Preset(
            "G = 2", {"group_size": 2}, "A pair says only which one is better, and often its two rewards are equal."
        ),
        Preset(
            "All rewards 1",
            {"rewards": [1.0, 1.0, 1.0, 1.0]},
            "Every group is constant and every advantage 0. The policy equals its reference, so the KL is still too.",
        ),
        Preset(
            "A close second",
            {"rewards": [-0.2, 0.3, 0.31, 0.0]},
            "c is best by 0.01 only. It wins all the same, some groups later: as a and d become rare the deviation "
            "shrinks, and the advantage of 0.01 grows. The optimum of E[r] − β·KL would keep much of b.",
        ),
        Preset(
            "β = 0.5",
            {"beta": 0.5},
            "The run passes the optimum of E[r] − β·KL: the advantages were divided by the deviation, so β is weighed "
            "against those, not against the rewards as they were given.",
        ),
        Preset(
            "Rewards × 100",
            {"rewards": [-20.0, 30.0, 100.0, 0.0], "beta": 0.5},
            "The optimum of E[r] − β·KL is now greedy, but the run is that of β = 0.5: its advantages did not change.",
        ),
        Preset(
            "One update",
            {"inner_updates": 1},
            "With one update a group the ratio is always 1. Move ε clip: nothing changes, not in one digit.",
        ),
        Preset(
            "Long inner loop",
            {"inner_updates": 4, "lr": 0.5, "clip": 0.05, "group_size": 4, "beta": 0.0},
            "Four large steps on four samples. The clip shortens each climb: one group moves a probability by at most "
            "0.08 here, by 0.3 at ε clip = 0.9.",
        ),
    ),
    panels=(
        Curves(
            x=Axis("groups", (0.0, float(STEPS))),
            y=Axis("probability", (0.0, 1.0)),
            lines=(
                Line("step", "path_0", "part2", "a", at=0.1, dash="5 3"),
                Line("step", "path_1", "part5", "b", at=0.2, dash="2 3"),
                Line("step", "path_3", "part6", "d", at=0.3, dash="8 3 2 3"),
                Line("step", "path_2", "part1", "c", at=0.4),
            ),
            alt=(
                "Probability of each action from the start to group 80. All begin at 0.25; at the end a has "
                "{p[0]:.3f}, b {p[1]:.3f}, c {p[2]:.3f}, d {p[3]:.3f}."
            ),
        ),
        Numbers(
            tiles=(
                Tile("best_p", "P(best), at the end", ".4f", note="after 40 groups: {half_way:.4f}"),
                Tile("expected_reward", "E[r]", "~.3f", note="at the start: {expected_reward_start:~.3f}"),
                Tile("kl", "KL(p‖start), nats", "~.3f", note="at most log 4 = 1.386"),
                Tile("constant_groups", "constant groups", "d", note="of 80: {constant_share:.0%}"),
            ),
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "flat",
                "All rewards are equal, so every advantage is 0, and the policy starts at its reference, so the KL "
                "does not pull: nothing moves.",
            ),
            (
                "missed",
                "Action {top:letter} leads with {top_p:.1%}, though {best:letter} has the highest reward: after 80 "
                "groups {best:letter} stands at {best_p:.1%}.",
            ),
            (
                "slow",
                "Action {best:letter} leads, but only with {best_p:.1%} after 80 groups of {group_size:d}; "
                "{constant_groups:d} groups were constant and gave no advantage.",
            ),
        ),
        otherwise=(
            "After 80 groups of {group_size:d}, action {best:letter} has {best_p:.1%}; {constant_groups:d} groups were "
            "constant and gave no advantage."
        ),
    ),
    python=(
        "from labsrc.bandit import train_group_bandit\n\n"
        "history = train_group_bandit(\n"
        "    group_size={group_size:py}, beta={beta:py}, clip={clip:py}, lr={lr:py},\n"
        "    inner_updates={inner_updates:py}, seed={seed:py}, rewards={rewards:py},\n"
        ")\n"
        "p = history[-1]\n"
        "print(p)"
    ),
)
