"""Lab *tilt* (chapter 1): the policy that maximises E[r] − β·KL, as β, the rewards and the reference are turned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from labsrc import checks
from labsrc.closed_form import log_partition, objective, optimal_policy
from labsrc.kl import kl_divergence
from labsrc.labs.controls import Column, Preset, Slider, State, Table
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Bars, Curves, Line, Mark, Numbers, Rule, Sentence, Series, Tile

# The β of the frontier's points, in units of the spread of the rewards, so that any table is drawn from end to end.
FRONTIER_BETAS = [10 ** (exponent / 20) for exponent in range(-50, 51)]


def compute(state: State, *, policy: Callable[..., Any] = optimal_policy) -> dict[str, Any]:
    """Policy, KL, objective and frontier for one state; shapes: K actions, N points of the frontier.

    state: beta, rewards (K,), weights (K,), which divided by their sum are the reference q. policy: a function
    (q, rewards, *, beta) to probabilities (K,), by default the optimum; pass another to see what it is worth.
    Raises ValueError where all weights are 0 or where `policy` gives no distribution.
    """
    beta = checks.positive("beta", state["beta"])
    rewards, weights = checks.finite("rewards", state["rewards"]), checks.finite("weights", state["weights"])
    if weights.sum() <= 0:
        raise ValueError("weights must have at least one entry above 0")
    q = weights / weights.sum()
    p = checks.distribution("policy(q, rewards, beta)", policy(q, rewards, beta=beta))
    kl, best = kl_divergence(p, q), log_partition(q, rewards, beta=beta)
    expected, worth = p @ rewards, objective(p, q, rewards, beta=beta)
    supported = rewards[q > 0]
    spread = supported.max() - supported.min()
    # Only r/β enters the optimum, so all points come from one call at β = 1.
    betas = torch.tensor(FRONTIER_BETAS, dtype=q.dtype) * (spread if spread > 0 else 1.0)
    frontier = optimal_policy(q, rewards / betas[:, None], beta=1.0)
    # The first of the leading actions: where several lead, rounding must not choose among them.
    top = int((p >= p.max() - 1e-12).nonzero()[0])
    return {
        "q": q,
        "p": p,
        "expected_reward": expected,
        "expected_reward_ref": q @ rewards,
        "kl": kl,
        "objective": worth,
        "log_partition": best,
        "beta_log_partition": beta * best,
        "frontier_kl": kl_divergence(frontier, q),
        "frontier_reward": frontier @ rewards,
        # Points worth as much as this policy lie on a line of slope β through it: E[r] = objective + β·KL.
        "worth_kl": [0.0, 10.0],
        "worth_reward": [worth, worth + 10.0 * beta],
        "best_supported": supported.max(),
        "top": top,
        "top_p": p[top],
        "top_q": q[top],
        "unreachable": bool(rewards.max() > supported.max()),
        "flat": bool(spread == 0),
    }


tilt = Lab(
    name="tilt",
    title="Tilt a policy by reward",
    lead="p(a) = q(a)·exp(r(a)/β) / Z. Move β, or type other rewards and reference weights.",
    prompt="β goes from 0.6 down to 0.1. Which actions lose probability, and how large does KL(p‖q) get?",
    answer=(
        "Both a and b lose: the best supported action takes nearly everything, and KL comes close to its bound, "
        "log 1/q(c) = log 2 ≈ 0.693 nats. A smaller β buys reward with distance until there is none left to buy."
    ),
    compute=compute,
    controls=(
        Slider("beta", "β", "beta, the price of one nat of KL", 0.6, 0.01, 100.0, log=True),
        Table(
            row="action",
            columns=(
                Column("rewards", "reward"),
                Column("weights", "weight", minimum=0.0, fresh=0.1),
            ),
            values={"rewards": (-0.5, 0.7, 1.1), "weights": (0.2, 0.3, 0.5)},
            fewest_rows=2,
            most_rows=8,
            bars=Bars(
                series=(Series("q", "reference q", "reference"), Series("p", "tilted p", "policy")),
                domain=(0.0, 1.0),
            ),
        ),
    ),
    presets=(
        Preset("Worked case", {"beta": 0.6, "rewards": [-0.5, 0.7, 1.1], "weights": [0.2, 0.3, 0.5]}),
        Preset("β → 0", {"beta": 0.01}, "Distance costs nothing: p is greedy, all mass on the best supported action."),
        Preset("β → ∞", {"beta": 100.0}, "Distance costs too much: p stays at q, whatever the rewards say."),
        Preset(
            "A wrong reward",
            {"beta": 0.3, "rewards": [0.2, 0.5, 0.6, 3.0], "weights": [0.3, 0.34, 0.34, 0.02]},
            "Action d is a hack that the reward overrates; q gives it 0.02. Raise β: p moves less, but d stays the "
            "action that gains most. The penalty limits the distance, it does not mend the reward.",
        ),
        Preset(
            "Outside the support",
            {"beta": 0.1, "rewards": [-0.5, 0.7, 1.1, 5.0], "weights": [0.2, 0.3, 0.5, 0.0]},
            "Action d has the highest reward, but the reference never takes it: q(d) = 0, so p(d) = 0 at every β.",
        ),
    ),
    panels=(
        Numbers(
            tiles=(
                Tile("expected_reward", "E[r] under p", "~.3f", note="under q: {expected_reward_ref:~.3f}"),
                Tile("kl", "KL(p‖q), nats", "~.3f"),
                Tile("objective", "E[r] − β·KL", "~.3f", note="maximum: {beta_log_partition:~.3f}"),
                Tile("log_partition", "log Z", "~.3f", note="β·log Z: {beta_log_partition:~.3f}"),
            ),
            wide=False,
        ),
        Curves(
            x=Axis("KL(p‖q), nats"),
            y=Axis("E[r]"),
            lines=(
                Line("worth_kl", "worth_reward", "reference", dash="4 4", fit=False),
                Line("frontier_kl", "frontier_reward", "policy"),
            ),
            rules=(Rule("y", "best_supported", "best supported reward"),),
            marks=(
                Mark(0.0, "objective", "reference"),
                Mark("kl", "expected_reward", "policy", "β = {beta:.3g}"),
            ),
            caption="Dashed: all that is worth as much. It has slope β and meets KL = 0 at the objective.",
            alt=(
                "Expected reward against KL for every beta: a curve that rises steeply from the reference, then "
                "flattens. Now KL is {kl:~.3f} nats and the expected reward {expected_reward:~.3f}."
            ),
            wide=False,
        ),
    ),
    sentence=Sentence(
        cases=(
            ("flat", "All supported rewards are equal, so p = q at every β: there is nothing to gain by moving."),
            (
                "unreachable",
                "Action {top:letter} leads with {top_p:.1%}. The action with the highest reward has q = 0 and "
                "stays at 0: the policy cannot leave the support of its reference.",
            ),
        ),
        otherwise=(
            "At β = {beta:.3g} the policy pays {kl:~.3f} nats to raise E[r] from {expected_reward_ref:~.3f} to "
            "{expected_reward:~.3f}; action {top:letter} leads with {top_p:.1%} (reference {top_q:.1%})."
        ),
    ),
    python=(
        "from labsrc.closed_form import log_partition, objective, optimal_policy\n"
        "from labsrc.kl import kl_divergence\n\n"
        "q, rewards, beta = {q:py}, {rewards:py}, {beta:py}\n"
        "p = optimal_policy(q, rewards, beta=beta)\n"
        "print(p, kl_divergence(p, q), objective(p, q, rewards, beta=beta), log_partition(q, rewards, beta=beta))"
    ),
)
