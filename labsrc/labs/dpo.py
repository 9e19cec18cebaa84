"""Lab *dpo* (chapter 2): one preference pair, four log-probabilities, β; what the loss sees and how it pushes."""

from __future__ import annotations

from math import log
from typing import Any

import torch

from labsrc.labs.controls import Preset, Slider, State
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Axis, Bars, Curves, Line, Mark, Numbers, Sentence, Series, Tile
from labsrc.preference import dpo_logits, dpo_loss, log_ratio_margin, preference_log_prob

LOG_PROBS = ("logp_chosen", "logp_rejected", "logp_ref_chosen", "logp_ref_rejected")
# Half-widths of the axes. A few fixed ones, so that an axis holds still while a handle is dragged.
LOGIT_SPANS = (2.0, 10.0, 40.0)
RATIO_SPANS = (1.0, 2.0, 5.0, 10.0, 20.0)
_NOISE = 1e-12


def compute(state: State) -> dict[str, Any]:
    """Margin, logit, loss and gradient weight of one pair; shapes: N points of the loss curve.

    state: logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected, in nats, summed over a completion's tokens,
    and beta > 0. Raises ValueError as `preference.dpo_loss` does.
    """
    beta = state["beta"]
    pair = [torch.tensor(state[name], dtype=torch.float64) for name in LOG_PROBS]
    chosen, rejected, ref_chosen, ref_rejected = pair
    log_ratio_chosen, log_ratio_rejected = chosen - ref_chosen, rejected - ref_rejected
    margin, logits = log_ratio_margin(*pair), dpo_logits(*pair, beta=beta)
    loss = dpo_loss(*pair, beta=beta)
    # σ(−logit): the probability that the implicit rewards give to the other order, and minus the loss curve's slope.
    weight = preference_log_prob(beta * log_ratio_rejected, beta * log_ratio_chosen).exp()
    log_ratios = [value.item() for value in (log_ratio_chosen, log_ratio_rejected, margin)]
    span = _at_least(LOGIT_SPANS, abs(logits.item()))
    ratio_span = _at_least(RATIO_SPANS, max(map(abs, log_ratios)))
    curve = torch.arange(-40, 41, dtype=torch.float64) * (span / 40)
    ends = torch.tensor([-span, span], dtype=torch.float64)
    none = torch.zeros_like(curve)
    return {
        "log_ratios": log_ratios,
        "log_ratio_chosen": log_ratio_chosen,
        "log_ratio_rejected": log_ratio_rejected,
        "log_ratio_span": [-ratio_span, ratio_span],
        "margin": margin,
        "logits": logits,
        "loss": loss,
        "no_margin_loss": dpo_loss(0.0, 0.0, 0.0, 0.0, beta=beta),
        "weight": weight,
        "push": beta * weight,
        "p_chosen": chosen.exp(),
        "p_rejected": rejected.exp(),
        "curve_logits": curve,
        "curve_loss": dpo_loss(curve, none, none, none, beta=1.0),
        "tangent_logits": ends,
        "tangent_loss": loss - weight * (ends - logits),
        "no_margin": bool(margin.abs() < _NOISE),
        "displaced": bool(log_ratio_chosen < -_NOISE and margin > 0),
        "wrong_side": bool(margin < 0),
    }


def _at_least(spans: tuple[float, ...], size: float) -> float:
    return next((span for span in spans if span >= size), spans[-1])


def _log_prob(key: str, label: str, whose: str, value: float) -> Slider:
    return Slider(key, label, f"log-probability of the {whose}", value, -10.0, 0.0, step=0.05, format=".4g")


def _pair(*log_probs: float, beta: float = 0.1) -> State:
    return {**dict(zip(LOG_PROBS, log_probs, strict=True)), "beta": beta}


dpo = Lab(
    name="dpo",
    title="One pair under DPO",
    lead="loss = −log σ(β·h), h = log π/ref of the chosen completion less that of the rejected one; all in nats.",
    prompt=(
        "π(chosen) falls from 0.4 to 0.3 while π(rejected) falls from 0.4 to 0.15. The reference stays. Does the loss "
        "rise or fall?"
    ),
    answer=(
        "It falls. The loss sees only the difference of the two log-ratios, and the rejected completion fell faster. "
        "Press “Chosen falls: before”, then “after”, and watch π(chosen) and the loss go down together."
    ),
    compute=compute,
    controls=(
        _log_prob("logp_chosen", "log π chosen", "chosen completion under the policy", -2.2),
        _log_prob("logp_rejected", "log π rejected", "rejected completion under the policy", -2.8),
        _log_prob("logp_ref_chosen", "log ref chosen", "chosen completion under the reference", -2.0),
        _log_prob("logp_ref_rejected", "log ref rejected", "rejected completion under the reference", -2.4),
        Slider("beta", "β", "beta, the scale of the logit", 0.1, 0.01, 2.0, log=True),
    ),
    presets=(
        Preset("Worked pair", _pair(-2.2, -2.8, -2.0, -2.4)),
        Preset(
            "Swap",
            _pair(-2.8, -2.2, -2.0, -2.4),
            "The two policy values change places, the reference stays. The logit changes its sign but not to minus "
            "what it was: the reference prefers the chosen completion by itself, and the policy has to beat that.",
        ),
        Preset(
            "Start of training",
            _pair(-2.0, -2.4, -2.0, -2.4),
            "Policy = reference: no margin, loss ln 2 at every β. Yet half of the full push is there.",
        ),
        Preset(
            "Chosen falls: before",
            _pair(log(0.4), log(0.4), log(0.2), log(0.3)),
            "Three actions, reference (0.2, 0.3, 0.5), policy (0.4, 0.4, 0.2); the first is chosen, the second "
            "rejected. Note π(chosen) and the loss, then press “after”.",
        ),
        Preset(
            "Chosen falls: after",
            _pair(log(0.3), log(0.15), log(0.2), log(0.3)),
            "The policy went to (0.3, 0.15, 0.55). π(chosen) fell and so did the loss: the freed mass went to an "
            "action that is in no pair. That this can happen says nothing about how often one gradient step does it.",
        ),
        Preset(
            "Learned",
            _pair(-1.0, -9.0, -5.0, -5.0, beta=1.0),
            "Chosen and rejected are far apart: the weight is nearly 0, this pair hardly pushes any more.",
        ),
    ),
    panels=(
        Bars(
            series=(Series("log_ratios", "log π/ref, nats: how far the policy moved it", "policy", "~+.3f"),),
            domain="log_ratio_span",
            rows=("chosen", "rejected", "difference h"),
        ),
        Numbers(
            tiles=(
                Tile("logits", "logit β·h", "~.4f", note="h = {margin:~.3f} nats"),
                Tile("loss", "loss", ".4f", note="at h = 0: {no_margin_loss:.4f}"),
                Tile("weight", "weight σ(−logit)", ".4f", note="β·weight = {push:.4f}"),
                Tile("p_chosen", "π(chosen)", ".3g", note="rejected: {p_rejected:.2g}"),
            ),
            wide=False,
        ),
        Curves(
            x=Axis("logit"),
            y=Axis("loss"),
            lines=(
                Line("tangent_logits", "tangent_loss", "reference", dash="4 4", fit=False),
                Line("curve_logits", "curve_loss", "policy"),
            ),
            marks=(
                Mark(0.0, "no_margin_loss", "reference"),
                Mark("logits", "loss", "policy", "loss {loss:.4f}", over=True),
            ),
            caption="Dashed: the slope here, −σ(−logit). Grey dot: no margin, ln 2.",
            alt=(
                "Loss against the logit: it falls steeply left of 0 with slope near −1, passes ln 2 at 0 and flattens "
                "towards 0 on the right. Now the logit is {logits:~.4f}, the loss {loss:.4f}, the slope −{weight:.4f}."
            ),
            wide=False,
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "no_margin",
                "No margin: logit 0, weight one half, loss ln 2. A loss that stays at {no_margin_loss:.3f} says: the "
                "margins do not move.",
            ),
            (
                "displaced",
                "The chosen completion lost against the reference ({log_ratio_chosen:+.3f} nats), yet the loss is "
                "below ln 2: the rejected one lost more ({log_ratio_rejected:+.3f}).",
            ),
            (
                "wrong_side",
                "Against the reference the policy moved towards the rejected completion: loss above ln 2, weight "
                "{weight:.4f}, above one half. Such pairs are pushed hardest.",
            ),
        ),
        otherwise=(
            "The chosen completion leads by {margin:.3f} nats more than under the reference; β·weight = {push:.4f} "
            "pulls it up and the other down."
        ),
    ),
    python=(
        "import torch\n\n"
        "from labsrc.preference import dpo_logits, dpo_loss\n\n"
        "logp_chosen = torch.tensor({logp_chosen:py}, dtype=torch.float64, requires_grad=True)\n"
        "rest = ({logp_rejected:py}, {logp_ref_chosen:py}, {logp_ref_rejected:py})\n"
        "logits = dpo_logits(logp_chosen, *rest, beta={beta:py})\n"
        "loss = dpo_loss(logp_chosen, *rest, beta={beta:py})\n"
        "loss.backward()\n"
        "weight = -logp_chosen.grad / {beta:py}\n"
        "print(logits.item(), loss.item(), weight.item())"
    ),
)
