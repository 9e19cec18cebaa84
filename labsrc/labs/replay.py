"""Lab *replay* (chapter 5): the toy language model under four methods; trained in a notebook, replayed in a page."""

from __future__ import annotations

from functools import lru_cache
from math import nan
from typing import Any

from labsrc.labs.controls import Choice, Preset, Slider, State
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Curves, Grid, Line, Mark, Numbers, Rule, Sentence, Series, Tile
from labsrc.toylm import replay as recording

STEPS, TASK = recording.STEPS, recording.TASK


def compute(state: State) -> dict[str, Any]:
    """The run of one cell of `toylm.replay`'s grid, and what its step number `step` drew.

    state: method, group_size, beta, clip (texts) and step from 1. Lists by step describe the policy that draws in that
    step; NaN where a method has no such number.
    """
    run, method, now = _run(state), state["method"], state["step"] - 1
    curves = {
        name: _curve(run[name]) for name in ("expected_reward", "batch_reward", "kl", "clip_share", "constant_share")
    }
    drawn = run["completions"][min(now, len(run["completions"]) - 1)].split()
    rewards = [float(int(text[0]) == TASK.target) for text in drawn]
    advantages = _advantages(run, method, now, len(drawn))
    return {
        "steps": list(range(1, STEPS + 1)),
        **curves,
        **{f"{name}_now": values[now] for name, values in curves.items()},
        "at": state["step"],
        "optimum": run["optimum"],
        "reward_end": run["expected_reward"][STEPS],
        "kl_end": run["kl"][STEPS],
        "completion": [_words(text, index, method) for index, text in enumerate(drawn)],
        "reward": rewards,
        "advantage_first": [first for first, _ in advantages],
        "advantage_second": [second for _, second in advantages],
        "clip_note": CLIP_NOTES.get(method, CLIPPED),
        "constant_note": PAIRS_NOTE if method == "dpo" else GROUPS_NOTE,
        "pairs": method == "dpo",
        "unclipped": method == "rloo",
        "critic": method == "ppo",
        "silent": method == "grpo" and len(set(rewards)) == 1,
        "call": run["call"],
    }


def _run(state: State) -> dict[str, Any]:
    values = {"group_size": int(state["group_size"]), "beta": float(state["beta"]), "clip": float(state["clip"])}
    return _trained(state["method"], **{axis: values[axis] for axis in recording.AXES[state["method"]]})


@lru_cache(maxsize=128)
def _trained(method: str, **chosen: float) -> dict[str, Any]:
    """One run, kept: every step of it is looked at from the same run."""
    return recording.record(method, **chosen)


def _curve(values: list[float] | None) -> list[float]:
    """The entries of the steps; the policy after the last one is left out."""
    return [nan] * STEPS if values is None else values[:STEPS]


def _advantages(run: dict[str, Any], method: str, now: int, count: int) -> list[tuple[float, float]]:
    """Of the first and the second token of each completion."""
    if run["advantages"] is None:
        return [(nan, nan)] * count
    values = run["advantages"][now]
    return list(zip(values[::2], values[1::2], strict=True)) if method == "ppo" else [(one, one) for one in values]


def _words(text: str, index: int, method: str) -> str:
    side = f" {('chosen', 'rejected')[index % 2]}" if method == "dpo" else ""
    return f"{text[0]} {text[1]}{side}"


METHODS = {"grpo": "GRPO", "rloo": "RLOO", "ppo": "PPO", "dpo": "DPO"}
CLIPPED = "Share of tokens that the clip takes out of the gradient, in the last of a step's 3 updates."
CLIP_NOTES = {
    "rloo": "RLOO makes one update a step, so every ratio is 1, and its loss has no clip: ε clip changes nothing.",
    "dpo": "DPO has no importance ratio and no clip: ε clip changes nothing.",
}
GROUPS_NOTE = "Share of the step's 4 groups in which all rewards are equal."
PAIRS_NOTE = "DPO draws no groups: G changes nothing."


def _plot(title: str, key: str, label: str, domain: tuple[float, float], fmt: str, alt: str, **rest: Any) -> Curves:
    """One of the four plots: a curve by step, with a rule and a dot at the chosen one."""
    return Curves(
        title=title,
        x=Axis("step", (1.0, float(STEPS))),
        y=Axis(label, domain),
        lines=(Line("steps", key, "policy"), *rest.pop("lines", ())),
        marks=(Mark("at", f"{key}_now", "policy", f"{{{key}_now:{fmt}}}", over=key != "expected_reward"),),
        rules=(Rule("x", "at"), *rest.pop("rules", ())),
        alt=alt,
        height=140,
        wide=False,
        **rest,
    )


def _texts(values: tuple[float, ...]) -> dict[str, str]:
    # In a page, a key that reads as a whole number would come before the others: "1.0" does not.
    return {str(value): f"{value:g}" for value in values}


replay = Lab(
    name="replay",
    title="Four methods on one tiny language model",
    lead=(
        "Four prompts, completions of two tokens from 0 to 7, reward 1 if the first token is 6. Every run starts from "
        "the same weights and makes 20 steps; a page replays records, a notebook trains now. One seed and one "
        "learning rate: no ranking."
    ),
    prompt=(
        "At β = 1 the best policy of E[r] − β·KL earns 0.26, the start 0.11. Where do 20 steps of GRPO with G = 16 and "
        "ε clip 0.2 end, and where those of RLOO?"
    ),
    answer=(
        "GRPO at 0.60, RLOO at 0.23. GRPO divides the advantages by the deviation of the rewards but not the KL, so β "
        "weighs less than it says. RLOO takes β·KL off the reward before anything else, and keeps below the optimum."
    ),
    compute=compute,
    controls=(
        Choice("method", "method", METHODS, "grpo"),
        Choice("group_size", "G", _texts(recording.GROUP_SIZES), "16"),
        Choice("beta", "β", _texts(recording.BETAS), "0.2"),
        Choice("clip", "ε clip", _texts(recording.CLIPS), "0.2"),
        Slider("step", "step", "step to look at", 7, 1, STEPS, step=1, integer=True, format="d", lazy=True),
    ),
    presets=(
        Preset("GRPO, G = 16", {}, "Most of the clipping falls where the policy moves fastest, at steps 6 to 7."),
        Preset(
            "G = 2",
            {"group_size": "2", "step": 1},
            "In step 1 all four pairs of completions earn 0: no advantage, no update but the KL's, and the KL is 0.",
        ),
        Preset(
            "Narrow clip",
            {"clip": "0.05", "step": 12},
            "Three of four tokens are clipped at step 12, and E[r] passes one half five steps later than at 0.2.",
        ),
        Preset(
            "β = 1, GRPO",
            {"beta": "1.0", "step": 20},
            "GRPO passes the optimum of E[r] − β·KL: its advantages were divided by the deviation, the KL was not.",
        ),
        Preset(
            "β = 1, RLOO",
            {"method": "rloo", "beta": "1.0", "step": 20},
            "The KL is part of the reward, and RLOO ends just below the optimum of E[r] − β·KL.",
        ),
        Preset(
            "PPO",
            {"method": "ppo", "step": 8},
            "The critic gives each token an advantage. Those of the second, which cannot change the reward any more, "
            "are on average little more than half as large: what is left is the critic's error and the KL.",
        ),
        Preset(
            "DPO",
            {"method": "dpo", "step": 20},
            "One step is one update on 64 sampled pairs less the ties. Its labels are certain, so β·KL is not weighed "
            "against a reward: the dashed optimum is not what it is after.",
        ),
    ),
    panels=(
        _plot(
            "Reward",
            "expected_reward",
            "reward",
            (0.0, 1.0),
            ".3f",
            "Expected reward by step, from {expected_reward[0]:.3f} to {expected_reward_now:.3f} at step {at:d}.",
            lines=(Line("steps", "batch_reward", "old", dash="2 3"),),
            rules=(Rule("y", "optimum", "optimum {optimum:.2f}"),),
            caption="Solid: E[r], exactly. Dotted: mean of the step's own completions.",
        ),
        _plot(
            "KL to the reference",
            "kl",
            "nats",
            (0.0, 4.0),
            ".3f",
            "KL of whole completions to the reference by step; {kl_now:.3f} nats at step {at:d}.",
            caption="Of whole completions, exactly.",
        ),
        _plot(
            "Clip fraction",
            "clip_share",
            "share of tokens",
            (0.0, 1.0),
            ".1%",
            "Share of clipped tokens by step; {clip_share_now:.1%} at step {at:d}. {clip_note}",
            caption="{clip_note}",
        ),
        _plot(
            "Zero-variance groups",
            "constant_share",
            "share of groups",
            (0.0, 1.0),
            ".0%",
            "Share of groups with equal rewards by step; {constant_share_now:.0%} at step {at:d}. {constant_note}",
            caption="{constant_note}",
        ),
        Numbers(
            tiles=(
                Tile("expected_reward_now", "E[r] at this step", ".3f", note="after step 20: {reward_end:.3f}"),
                Tile("kl_now", "KL, nats", ".3f", note="after step 20: {kl_end:.3f}"),
                Tile("clip_share_now", "clip fraction", ".1%"),
                Tile("constant_share_now", "zero-variance groups", ".0%"),
            ),
        ),
        Grid(
            columns=(
                Series("completion", "tokens", "policy", "text"),
                Series("reward", "reward", "policy", "d"),
                Series("advantage_first", "A, 1st token", "policy", "+.3f"),
                Series("advantage_second", "A, 2nd token", "policy", "+.3f"),
            ),
            rows="number",
            title="Completions of this step: the group of prompt 1 3 (DPO: 4 of its pairs)",
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "pairs",
                "DPO, step {at:d}: the same pairs as in every step, so nothing is drawn, and there is neither an "
                "advantage nor a group nor a clip; G and ε clip change nothing. E[r] is {expected_reward_now:.3f}, the "
                "KL {kl_now:.3f} nats.",
            ),
            (
                "silent",
                "GRPO, step {at:d}: all completions of prompt 1 3 earned the same, so each advantage is 0 and only the "
                "KL's gradient comes from this group. E[r] is {expected_reward_now:.3f}, the KL {kl_now:.3f} nats.",
            ),
            (
                "unclipped",
                "RLOO, step {at:d}: one update, no clip; ε clip changes nothing. E[r] is {expected_reward_now:.3f}, "
                "the KL {kl_now:.3f} nats, and {constant_share_now:.0%} of the groups have equal rewards.",
            ),
            (
                "critic",
                "PPO, step {at:d}: E[r] is {expected_reward_now:.3f}, the KL {kl_now:.3f} nats; "
                "{clip_share_now:.1%} of the tokens are clipped. Advantages come from a critic, so groups of equal "
                "rewards have some too.",
            ),
        ),
        otherwise=(
            "GRPO, step {at:d}: E[r] is {expected_reward_now:.3f}, the KL {kl_now:.3f} nats; {clip_share_now:.1%} of "
            "the tokens are clipped, and {constant_share_now:.0%} of the groups have equal rewards."
        ),
    ),
    python=(
        "from labsrc import toylm\n\n"
        "trainer = toylm.train({call})\n"
        "at = {at:py}\n"
        "print(trainer.monitors[at - 1])\n"
        "print(trainer.groups[at - 1].keys())  # tokens, rewards, advantages, log-probabilities\n\n"
        "end = toylm.evaluate(trainer.policy, trainer.reference, trainer.settings.task)\n"
        'reward_end, kl_end = round(end["expected_reward"], 4), round(end["sequence_kl"], 4)\n'
        "print(reward_end, kl_end)"
    ),
)
