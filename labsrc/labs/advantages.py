"""Lab *advantages* (chapter 3): rewards, one group a column, and what each choice of statistics makes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc.advantages import batch_standardized, centered, is_constant_group, leave_one_out, standardized
from labsrc.labs.controls import Choice, Matrix, Preset, Slider, State
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Bars, Grid, Numbers, Sentence, Series, Tile

MOST_PROMPTS = 4
FUNCTIONS = {"group": standardized, "batch": batch_standardized}


def compute(state: State) -> dict[str, Any]:
    """Advantages (P, G) of a table of rewards, and the statistics behind them.

    state: rewards (P, G), std_eps, ddof "0" or "1", baseline "mean" or "leave_one_out", scale "group", "batch" or
    "none". Raises ValueError as the functions of `labsrc.advantages` do.
    """
    rewards, ddof = torch.tensor(state["rewards"], dtype=torch.float64), int(state["ddof"])
    prompts, group_size = rewards.shape
    function, options, times = _call(state["scale"], state["baseline"], group_size)
    advantages = _advantages(rewards, state, ddof)
    constant, largest = is_constant_group(rewards), advantages.abs().max().item()
    deviations = rewards.std(-1, correction=ddof)
    reach = largest or 1.0
    return {
        "advantages": advantages,
        **{f"advantages_{i + 1}": advantages[i] if i < prompts else [] for i in range(MOST_PROMPTS)},
        "advantage_domain": [-reach, reach],
        "group_mean": rewards.mean(-1),
        "group_std": deviations,
        "largest_by_group": advantages.abs().amax(-1),
        "sum_of_squares": advantages.square().sum(-1),
        "is_constant": ["yes" if one else "no" for one in constant.tolist()],
        "prompts": prompts,
        "constant": constant.sum(),
        "constant_share": constant.double().mean(),
        "batch_mean": rewards.mean(),
        "batch_std": rewards.std(correction=ddof),
        "mean_group_std": deviations.mean(),
        "largest": largest,
        "smallest_live": _smallest(advantages, constant),
        "all_constant": bool(constant.all()),
        "some_constant": bool(constant.any()),
        "function": function,
        "options": options,
        "times": times,
    }


def _advantages(rewards: Tensor, state: State, ddof: int) -> Tensor:
    if state["scale"] == "none":
        return (leave_one_out if state["baseline"] == "leave_one_out" else centered)(rewards)
    scaled = FUNCTIONS[state["scale"]](rewards, std_eps=state["std_eps"], ddof=ddof)
    if state["baseline"] == "mean":
        return scaled
    # Leaving the sample out of its baseline is the group mean's advantage times G/(G − 1), whatever divides it.
    group_size = rewards.shape[-1]
    return scaled * group_size / (group_size - 1)


def _call(scale: str, baseline: str, group_size: int) -> tuple[str, str, str]:
    """The function that gives these advantages, its options, and what its result is multiplied by, as source."""
    alone = baseline == "leave_one_out"
    if scale == "none":
        return ("leave_one_out" if alone else "centered"), "", ""
    return FUNCTIONS[scale].__name__, ", **guard", f" * {group_size} / {group_size - 1}" if alone else ""


def _smallest(advantages: Tensor, constant: Tensor) -> float:
    """The smallest, over the groups that say anything, of a group's largest advantage; 0 where there are none."""
    return advantages[~constant].abs().amax(-1).min().item() if not constant.all() else 0.0


advantages = Lab(
    name="advantages",
    title="From rewards to advantages",
    lead="A column is a group: the answers to one prompt. A = (r − baseline)/(scale + ε std).",
    prompt=(
        "Prompt 2 has rewards some ten times those of prompt 1, and prompt 3 has four times the same. Divided by the "
        "deviation of its group, how large does each prompt's largest advantage get?"
    ),
    answer=(
        "1.50, 1.26 and 0. The size of the rewards is gone, what is left is their shape; and a constant group says "
        "nothing, however good it is. Set the scale to “batch” or “none” and prompt 2 speaks loudest."
    ),
    compute=compute,
    controls=(
        Choice("baseline", "baseline", {"mean": "group mean", "leave_one_out": "leave one out"}, "mean"),
        Choice("scale", "scale", {"group": "std of the group", "batch": "std of the batch", "none": "none"}, "group"),
        Choice("ddof", "std", {"0": "population (ddof 0)", "1": "sample (ddof 1)"}, "0"),
        Slider("std_eps", "ε std", "guard of the standard deviation", 1e-4, 1e-8, 1.0, log=True),
        Matrix(
            "rewards",
            "reward",
            row="answer",
            column="prompt",
            values=((0.2, 0.8, 1.4, 0.6), (8.0, 9.0, 11.0, 12.0), (1.0, 1.0, 1.0, 1.0)),
            fewest_rows=2,
            most_rows=16,
            fewest_columns=1,
            most_columns=MOST_PROMPTS,
        ),
    ),
    presets=(
        Preset("Worked groups", {}, "Two groups that differ in size, and one without a signal."),
        Preset(
            "Gaps, not ranks",
            {"rewards": [[0.0, 1.0, 2.0, 10.0], [0.0, 1.0, 9.0, 10.0]]},
            "The same order twice, and other advantages: standardising keeps the relative gaps.",
        ),
        Preset(
            "0 or 1",
            {"rewards": [[1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0]]},
            "One right answer of eight gets 2.65; one of four right ones gets 1. A rare success is pushed hardest.",
        ),
        Preset(
            "Spread, no signal",
            {"rewards": [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [5.0, 5.0, 5.0, 5.0], [9.0, 9.0, 9.0, 9.0]]},
            "The deviation over the batch, the one that logs print, is large. Each group is constant all the same, and "
            "every advantage is 0.",
        ),
        Preset(
            "Noise made large",
            {"rewards": [[0.5, 0.5001, 0.4999, 0.5], [0.0, 1.0, 0.0, 1.0]], "std_eps": 1e-8},
            "Differences of 0.0001 get advantages as large as those of 0 against 1. Raise ε std to 0.01, or scale by "
            "the batch.",
        ),
        Preset(
            "Pairs",
            {"rewards": [[0.0, 1.0], [0.0, 0.01], [3.0, 100.0]]},
            "With G = 2 only the sign is left: ±1, or ±0.71 with the sample deviation.",
        ),
        Preset(
            "Two deviations",
            {"rewards": [[0.0, 1.0, 2.0, 3.0]], "ddof": "1"},
            "Σ A² = G holds for the population deviation only; with the sample deviation it is G − 1.",
        ),
    ),
    panels=(
        Numbers(
            tiles=(
                Tile("constant_share", "zero-variance share", ".0%", note="{constant:d} of {prompts:d} groups"),
                Tile("largest", "largest |A|", "~.4f", note="quietest group: {smallest_live:~.4f}"),
                Tile("mean_group_std", "std in a group, mean", "~.4f"),
                Tile("batch_std", "std of the batch", "~.4f", note="mean of the batch: {batch_mean:~.4f}"),
            ),
        ),
        *(
            Bars(
                series=(Series(f"advantages_{i}", f"A, prompt {i}", "advantage", "~+.4f"),),
                domain="advantage_domain",
                rows="number",
                wide=False,
            )
            for i in range(1, MOST_PROMPTS + 1)
        ),
        Grid(
            columns=(
                Series("group_mean", "mean", "policy", "~.4f"),
                Series("group_std", "std", "policy", "~.4f"),
                Series("largest_by_group", "max |A|", "policy", "~.4f"),
                Series("sum_of_squares", "Σ A²", "policy", "~.4f"),
                Series("is_constant", "constant", "policy", "text"),
            ),
            rows="number",
            corner="prompt",
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "all_constant",
                "Every group is constant: no advantage, no policy gradient, though the deviation over the batch is "
                "{batch_std:~.3f}.",
            ),
            (
                "some_constant",
                "{constant:d} of {prompts:d} groups are constant and get 0 whatever their rewards are; the largest "
                "advantage is {largest:~.3f}.",
            ),
        ),
        otherwise=(
            "Every group has a signal. The largest advantage is {largest:~.3f}; the quietest group's largest is "
            "{smallest_live:~.3f}."
        ),
    ),
    python=(
        "from labsrc.advantages import {function}\n\n"
        "rewards = {rewards:py}\n"
        "guard = dict(std_eps={std_eps:py}, ddof={ddof})\n"
        "advantages = {function}(rewards{options}){times}\n"
        "print(advantages)"
    ),
)
