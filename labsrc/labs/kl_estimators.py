"""Lab *kl_estimators* (chapter 4): k1, k2, k3 as values and, by where they are placed, as gradients; all enumerated."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

from torch import Tensor

from labsrc import checks
from labsrc.exact import kl_gradient
from labsrc.kl import kl_divergence, ratio_weighted
from labsrc.kl_estimators import ESTIMATORS, PLACEMENTS, compared, gradient_moments, value_moments
from labsrc.labs.controls import Choice, Column, Preset, Slider, State, Table
from labsrc.labs.formats import format_value
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Bars, Grid, Numbers, Sentence, Series, Tile

WORKED_CASE = {"policy": (0.7, 0.2, 0.1), "reference": (0.2, 0.3, 0.5), "old": (0.3, 0.3, 0.4)}
_NOISE = 1e-12
_UPHILL = -1e-9


def compute(state: State) -> dict[str, Any]:
    """Value, spread and gradient of each estimator, and what the gradient is in every placement; K actions.

    state: policy, reference, old (K,), weights > 0 that are divided by their sum; old_share, the share of the samples
    that come from old; placement, a key of `kl_estimators.PLACEMENTS`. Raises ValueError as `gradient_moments` does.
    """
    p, q, old = (_probabilities(name, state[name]) for name in WORKED_CASE)
    sampling = (1 - state["old_share"]) * p + state["old_share"] * old
    logp, logp_ref, logp_old = p.log(), q.log(), sampling.log()
    divergence, truth = kl_divergence(p, q).item(), kl_gradient(logp, logp_ref)
    flat = abs(divergence) < _NOISE
    values = {name: estimator(logp, logp_ref) for name, estimator in ESTIMATORS.items()}
    if "ρ" in state["placement"]:
        values = {name: ratio_weighted(value, logp - logp_old) for name, value in values.items()}
    moments = {name: value_moments(value, logp_old) for name, value in values.items()}
    cells = {
        place: {
            name: gradient_moments(placement, estimator, logp, logp_ref, logits_old=logp_old)
            for name, estimator in ESTIMATORS.items()
        }
        for place, placement in PLACEMENTS.items()
    }
    here = cells[state["placement"]]
    known = {name: compared(gradient.mean, logp, logp_ref) for name, gradient in here.items()}
    # Where π = ref there is no direction to compare with: what is left of the true gradient is rounding.
    cosines = {name: nan if flat else cosine for name, (_, cosine) in known.items()}
    uphill = [name for name, cosine in cosines.items() if cosine < _UPHILL]
    exact_names = [name for name, (equals, _) in known.items() if equals == "∇KL(π‖ref)"]
    return {
        "p": p,
        "q": q,
        "sampling": sampling,
        "kl": divergence,
        "kl_forward": kl_divergence(q, p),
        "mean": [divergence, *(moments[name].mean for name in ESTIMATORS)],
        "spread": [nan, *(moments[name].variance ** 0.5 for name in ESTIMATORS)],
        "cosine": [nan if flat else 1.0, *cosines.values()],
        "gradient_spread": [nan, *(here[name].variance ** 0.5 for name in ESTIMATORS)],
        "gradient_truth": truth,
        **{f"gradient_{name}": gradient.mean for name, gradient in here.items()},
        **{
            f"table_{name}": [_cell(row[name].mean, logp, logp_ref, flat) for row in cells.values()]
            for name in ESTIMATORS
        },
        "exact_names": _listed(exact_names) or "none of the three",
        "uphill_names": _listed(uphill),
        "lowest_cosine": min((cosine for cosine in cosines.values() if not isnan(cosine)), default=nan),
        "samples": _samples(state["old_share"]),
        "flat": flat,
        "uphill": bool(uphill),
    }


def _probabilities(name: str, weights: list[float]) -> Tensor:
    weights = checks.finite(name, weights)
    return weights / weights.sum()


def _cell(gradient: Tensor, logp: Tensor, logp_ref: Tensor, flat: bool) -> str:
    equals, cosine = compared(gradient, logp, logp_ref)
    shown = {"∇KL(π‖ref)": "✓", "∇KL(ref‖π)": "other\u00a0KL", "0": "zero"}
    return shown.get(equals) or ("not 0" if flat else format_value(cosine, "+.2f"))


def _samples(old_share: float) -> str:
    if 0 < old_share < 1:
        return f"{format_value(old_share, '.0%')} of the samples old"
    return "all samples old" if old_share else "fresh samples"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _at(placement: str, *, old_share: float = 0.0, **policies: tuple[float, ...]) -> State:
    tables = {name: list(weights) for name, weights in {**WORKED_CASE, **policies}.items()}
    return {"placement": placement, "old_share": old_share, **tables}


kl_estimators = Lab(
    name="kl_estimators",
    title="Three estimators of one KL",
    lead=(
        "k1 = −Δ, k2 = Δ²/2, k3 = e^Δ − Δ − 1, Δ = log ref/π; ρ = π over the policy that sampled. Every action counts "
        "with its probability: nothing is left to chance."
    ),
    prompt=(
        "On samples of π the mean of k3 is exactly KL(π‖ref). Take k3 itself as the loss: is the gradient that of "
        "KL(π‖ref) too? And k1's?"
    ),
    answer=(
        "Neither. As a loss on fresh samples k1 gives exactly 0, k2 gives ∇KL(π‖ref), and k3 gives the gradient of the "
        "other divergence, KL(ref‖π). A right value and a right gradient are two questions."
    ),
    compute=compute,
    controls=(
        Choice("placement", "placed in the", {name: name for name in PLACEMENTS}, "loss"),
        Slider(
            "old_share", "old samples", "share of the samples that the old policy drew", 0.0, 0.0, 1.0, format=".2f"
        ),
        Table(
            row="action",
            columns=(
                Column("policy", "π", minimum=0.01, maximum=10.0, fresh=0.1),
                Column("reference", "ref", minimum=0.01, maximum=10.0, fresh=0.1),
                Column("old", "old", minimum=0.01, maximum=10.0, fresh=0.1),
            ),
            values=WORKED_CASE,
            fewest_rows=2,
            most_rows=5,
            bars=Bars(
                series=(
                    Series("p", "policy π", "policy"),
                    Series("q", "reference", "reference"),
                    Series("sampling", "sampler", "old"),
                ),
                domain=(0.0, 1.0),
            ),
        ),
    ),
    presets=(
        Preset(
            "Loss, fresh samples",
            _at("loss"),
            "k2 alone has the right gradient, though its value is the one that is off.",
        ),
        Preset(
            "Loss, old samples",
            _at("loss", old_share=1.0),
            "Now every mean is off too, and k1 as a loss points uphill: its gradient never looks at the reference.",
        ),
        Preset("Reward, fresh samples", _at("reward"), "As a cost in the reward only k1 is right."),
        Preset(
            "ρ detached",
            _at("loss, ρ detached", old_share=1.0),
            "Reweighted by a constant, the means are right again, and the gradients are those of fresh samples: k2's "
            "is right, k3's is that of the other divergence.",
        ),
        Preset(
            "ρ in the graph",
            _at("loss, ρ in graph", old_share=1.0),
            "The weight is differentiated too: k1 and k3 are right on any samples, in value and in gradient. k2 is "
            "not.",
        ),
        Preset(
            "Near the reference",
            _at("loss", policy=(0.21, 0.3, 0.49)),
            "Close to the reference the three means and the gradients of k2 and k3 nearly agree; k1's gradient is "
            "still 0.",
        ),
        Preset(
            "At the reference",
            _at("loss", policy=(0.2, 0.3, 0.5), old_share=1.0),
            "π = ref: every value is 0, and so is every gradient but that of k1 as a loss, which drives π away.",
        ),
    ),
    panels=(
        Numbers(
            tiles=(
                Tile("kl", "KL(π‖ref), nats", "~.4f", note="the value and the gradient that are wanted"),
                Tile("kl_forward", "KL(ref‖π), nats", "~.4f", note="the other divergence"),
            ),
        ),
        Grid(
            columns=(
                Series("mean", "mean", "policy", "~.4f"),
                Series("spread", "spread", "policy", "~.3f"),
                Series("cosine", "cosine", "policy", "~+.3f"),
                Series("gradient_spread", "noise", "policy", "~.3f"),
            ),
            rows=("truth", "k1", "k2", "k3"),
            title="Value of a sample: mean, spread. Its gradient: cosine with ∇KL(π‖ref), noise",
        ),
        Bars(
            series=(
                Series("gradient_truth", "∇KL(π‖ref)", "truth", "~+.3f"),
                Series("gradient_k1", "k1", "part4", "~+.3f"),
                Series("gradient_k2", "k2", "part5", "~+.3f"),
                Series("gradient_k3", "k3", "part1", "~+.3f"),
            ),
            title="Mean gradient on the logits, by action",
        ),
        Grid(
            columns=(
                Series("table_k1", "k1", "policy", "text"),
                Series("table_k2", "k2", "policy", "text"),
                Series("table_k3", "k3", "policy", "text"),
            ),
            rows=tuple(PLACEMENTS),
            corner="placed in the",
            title="In every place: ✓ is ∇KL(π‖ref), a number is the cosine with it",
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "flat",
                "π equals the reference: KL and its gradient are 0. Placed in the {placement}, 0 comes from "
                "{exact_names}; what is not 0 moves π away.",
            ),
            (
                "uphill",
                "In the {placement}, {samples}: ∇KL(π‖ref) comes from {exact_names}. Descending {uphill_names} raises "
                "the KL (lowest cosine {lowest_cosine:+.3f}).",
            ),
        ),
        otherwise=(
            "In the {placement}, {samples}: ∇KL(π‖ref) comes from {exact_names}. KL(π‖ref) is {kl:.4f}, the means are "
            "{mean[1]:~.4f}, {mean[2]:~.4f} and {mean[3]:~.4f}."
        ),
    ),
    python=(
        "import torch\n\n"
        "from labsrc.exact import kl_gradient\n"
        "from labsrc.kl_estimators import ESTIMATORS, PLACEMENTS, gradient_moments\n\n"
        "weights = torch.tensor([{policy:py}, {reference:py}, {old:py}], dtype=torch.float64)\n"
        "p, q, p_old = weights / weights.sum(1, keepdim=True)\n"
        "sampling = (1 - {old_share:py}) * p + {old_share:py} * p_old\n"
        "logits, logits_ref, logits_old = p.log(), q.log(), sampling.log()\n"
        'place = PLACEMENTS["{placement}"]\n'
        "gradients = dict()\n"
        "for name, estimator in ESTIMATORS.items():\n"
        "    moments = gradient_moments(place, estimator, logits, logits_ref, logits_old=logits_old)\n"
        "    gradients[name] = moments.mean\n"
        "gradient_truth = kl_gradient(logits, logits_ref)\n"
        "print(gradient_truth, gradients)"
    ),
)
