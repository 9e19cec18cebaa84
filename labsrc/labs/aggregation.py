"""Lab *aggregation* (chapter 6): what one token weighs under four losses, and three ratios of one sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labsrc.grpo import bnpo_loss, dapo_loss, dr_grpo_loss, grpo_loss
from labsrc.labs.controls import Column, Preset, Slider, State, Table
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Bars, Numbers, Sentence, Series, Tile
from labsrc.masking import sum_over_tokens
from labsrc.policy_gradient import sequence_log_ratio

METHODS = ("grpo", "bnpo", "dapo", "dr_grpo")
MOST_LENGTH = 2048
# Weights closer than this, relatively, are equal: what differs is the order of a sum.
_TIED = 1e-9


def compute(state: State) -> dict[str, Any]:
    """Weights of a token by completion and loss, and the token, geometric-mean and product ratio of a sequence.

    state: lengths, advantages (B,); micro_batch, the completions whose gradients are taken at once; max_length, of
    dr_grpo; ratios and counts: a sequence with counts[i] tokens of ratio ratios[i]. `weight_*` is the derivative of
    minus the loss by one token's log-probability at ratio 1 and A = 1, times the number of tokens of the batch;
    `push_*` is a completion's sum of them times A, over that number. Raises ValueError as the losses do.
    """
    lengths, advantages = state["lengths"], torch.tensor(state["advantages"], dtype=torch.float64)
    sizes, tokens = torch.tensor(lengths, dtype=torch.float64), sum(lengths)
    weights = {name: token_weights(lengths, name, state) for name in METHODS}
    shown = {name: weight * tokens for name, weight in weights.items()}
    spread = {name: (weight.max() / weight.min()).item() for name, weight in shown.items()}
    split = state["micro_batch"] < len(lengths)
    return {
        **{f"weight_{name}": weight for name, weight in shown.items()},
        **{f"push_{name}": weight * sizes * advantages for name, weight in weights.items()},
        **{f"spread_{name}": value for name, value in spread.items()},
        "token_count": tokens,
        "completions": len(lengths),
        "slices": -(-len(lengths) // state["micro_batch"]),
        "split": split,
        "equal": max(lengths) == min(lengths),
        "apart": split and (shown["bnpo"] - shown["dapo"]).abs().max().item() > _TIED,
        **_ratios(state["ratios"], state["counts"]),
    }


@torch.enable_grad()
def token_weights(lengths: list[int], method: str, state: State) -> Tensor:
    """−∂loss/∂log π at one token of each completion (B,), on policy and with advantages 1.

    The batch is taken in slices of state["micro_batch"] completions, as a trainer accumulates gradients: each slice has
    its own loss, weighted by its share of the completions; dapo's slices are divided by the tokens of the whole batch
    and add up.
    """
    loss, whole = _loss(method, sum(lengths), state["max_length"])
    weights = []
    for start in range(0, len(lengths), state["micro_batch"]):
        part = torch.tensor(lengths[start : start + state["micro_batch"]])
        mask = torch.arange(int(part.max())) < part[:, None]
        logp = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True)
        share = 1.0 if whole else len(part) / len(lengths)
        (slope,) = torch.autograd.grad(loss(logp, logp.detach(), None, torch.ones(len(part)), mask, beta=0.0), logp)
        weights.append(-share * slope[:, 0])
    return torch.cat(weights)


def _loss(method: str, token_count: int, max_length: int) -> tuple[Callable[..., Tensor], bool]:
    """The loss of one slice, and whether the slices' losses add up by themselves."""
    if method == "dapo":
        return partial(dapo_loss, token_count=token_count), True
    if method == "dr_grpo":
        return partial(dr_grpo_loss, max_length=max_length), False
    return {"grpo": grpo_loss, "bnpo": bnpo_loss}[method], False


def _ratios(ratios: list[float], counts: list[int]) -> dict[str, Any]:
    """The largest and smallest token ratio, the geometric mean and the product, with their logarithms."""
    log_ratio = torch.tensor(ratios, dtype=torch.float64).log().repeat_interleave(torch.tensor(counts))[None]
    mask = torch.ones(log_ratio.shape, dtype=torch.bool)
    mean, total = sequence_log_ratio(log_ratio, mask), sum_over_tokens(log_ratio, mask)
    return {
        "largest_ratio": max(ratios),
        "smallest_ratio": min(ratios),
        "geometric_mean": mean.exp().item(),
        "product": total.exp().item(),
        "log_product": total.item(),
        "sequence_tokens": sum(counts),
    }


def _four(key: str, formats: str) -> tuple[Series, ...]:
    roles = ("part1", "part2", "part3", "part4")
    return tuple(Series(f"{key}_{name}", name, role, formats) for name, role in zip(METHODS, roles, strict=True))


aggregation = Lab(
    name="aggregation",
    title="Length, aggregation, ratio",
    lead=(
        "Four losses turn one number a token into one a batch. Above: what a token weighs in each. Below: what one "
        "sequence's token ratios become when a loss takes one ratio a sequence."
    ),
    prompt=(
        "Two completions, of 100 and of 1000 tokens. Under grpo, how many times more does a token of the short one "
        "weigh?"
    ),
    answer=(
        "Ten times: each completion has the same weight, shared among its tokens. A long wrong answer is pushed down "
        "less per token than a short one. Under dapo and dr_grpo all tokens weigh the same."
    ),
    compute=compute,
    controls=(
        Table(
            row="answer",
            columns=(
                Column("lengths", "length", minimum=1, maximum=MOST_LENGTH, fresh=100, integer=True),
                Column("advantages", "A", minimum=-100.0, maximum=100.0, fresh=1.0),
            ),
            values={"lengths": (100, 1000), "advantages": (1.0, -1.0)},
            fewest_rows=1,
            most_rows=8,
            rows="number",
        ),
        Slider("micro_batch", "micro-batch", "completions in a micro-batch", 8, 1, 8, step=1, integer=True, format="d"),
        Slider(
            "max_length",
            "max length",
            "longest completion allowed, the divisor of dr_grpo",
            1024,
            1024,
            4096,
            step=64,
            integer=True,
            format="d",
            unit="tokens",
        ),
        Table(
            row="stretch",
            columns=(
                Column("counts", "tokens", minimum=1, maximum=4096, fresh=1, integer=True),
                Column("ratios", "ratio", minimum=0.001, maximum=1000.0, fresh=1.0),
            ),
            values={"counts": (1, 1), "ratios": (2.0, 2.0)},
            fewest_rows=1,
            most_rows=6,
            rows="number",
        ),
    ),
    presets=(
        Preset(
            "100 and 1000",
            {},
            "Under grpo a token of the short completion weighs ten times one of the long. Below, two ratios of 2 have "
            "geometric mean 2 and product 4.",
        ),
        Preset(
            "Micro-batches of 1",
            {"micro_batch": 1},
            "One completion a micro-batch: bnpo's “all tokens” are those of one completion, and it becomes grpo. dapo "
            "divides by the tokens of the whole batch, however it is cut.",
        ),
        Preset(
            "Micro-batches of 2",
            {"lengths": [100, 100, 1000, 1000], "advantages": [1.0, -1.0, 1.0, -1.0], "micro_batch": 2},
            "In bnpo a token's weight now depends on which completions share its micro-batch.",
        ),
        Preset(
            "Long and wrong",
            {"lengths": [200, 200, 200, 1000], "advantages": [0.58, 0.58, 0.58, -1.73]},
            "The long wrong answer: under grpo its pushes cancel those of the three right ones. Under dapo it "
            "outweighs them five to one.",
        ),
        Preset(
            "Ratios 2 and ½",
            {"counts": [1, 1], "ratios": [2.0, 0.5]},
            "Geometric mean and product are both 1, and neither token has ratio 1.",
        ),
        Preset(
            "e³ in a thousand",
            {"counts": [1, 999], "ratios": [20.085536923187668, 1.0]},
            "One token of ratio e³ is far outside a token clip of 0.2; the geometric mean moves by 0.3%.",
        ),
    ),
    panels=(
        Bars(
            series=_four("weight", ".3f"),
            rows="number",
            title="Weight of one token (dapo = 1)",
            wide=False,
        ),
        Bars(
            series=_four("push", "~+.3f"),
            rows="number",
            title="A × weight, sum over the answer",
            wide=False,
        ),
        Numbers(
            tiles=(
                Tile("spread_grpo", "grpo, max : min", ".2f", note="weight of a token"),
                Tile("spread_bnpo", "bnpo, max : min", ".2f", note="micro-batches: {slices:d}"),
                Tile("spread_dapo", "dapo, max : min", ".2f", note="{token_count:d} tokens"),
                Tile("spread_dr_grpo", "dr_grpo, max : min", ".2f", note="divisor {completions:d} × {max_length:d}"),
            ),
        ),
        Numbers(
            tiles=(
                Tile("largest_ratio", "largest token ratio", ".5g", note="smallest {smallest_ratio:.5g}"),
                Tile("geometric_mean", "geometric mean", ".5g", note="ratio of gspo"),
                Tile("product", "product", ".5g", note="log {log_product:~.4g} nats"),
            ),
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "equal",
                "All completions have one length: the four losses differ by a constant. Token ratios: geometric mean "
                "{geometric_mean:.5g}, product {product:.5g}.",
            ),
            (
                "apart",
                "The heaviest token weighs {spread_grpo:.2f} times the lightest under grpo, {spread_bnpo:.2f} times "
                "under bnpo. Token ratios: geometric mean {geometric_mean:.5g}, product {product:.5g}.",
            ),
        ),
        otherwise=(
            "The heaviest token weighs {spread_grpo:.2f} times the lightest under grpo, the same elsewhere. Token "
            "ratios: geometric mean {geometric_mean:.5g}, product {product:.5g}."
        ),
    ),
    python=(
        "import torch\n\n"
        "from labsrc.grpo import grpo_loss\n"
        "from labsrc.masking import sum_over_tokens\n"
        "from labsrc.policy_gradient import sequence_log_ratio\n\n"
        "lengths = torch.tensor({lengths:py})\n"
        "mask = torch.arange(lengths.max()) < lengths[:, None]\n"
        "logp = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True)\n"
        "loss = grpo_loss(logp, logp.detach(), None, torch.ones(len(lengths)), mask, beta=0.0)\n"
        "weight_grpo = -torch.autograd.grad(loss, logp)[0][:, 0] * lengths.sum()\n"
        "print(weight_grpo)\n\n"
        "counts, ratios = torch.tensor({counts:py}), torch.tensor({ratios:py}, dtype=torch.float64)\n"
        "log_ratio = ratios.log().repeat_interleave(counts)[None]\n"
        "valid = torch.ones(log_ratio.shape, dtype=torch.bool)\n"
        "geometric_mean = sequence_log_ratio(log_ratio, valid).exp().item()\n"
        "product = sum_over_tokens(log_ratio, valid).exp().item()\n"
        "print(geometric_mean, product)"
    ),
)
