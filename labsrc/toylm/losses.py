"""The tables that let a setting name a loss or an advantage; the functions themselves are labsrc's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from labsrc import advantages, aggregation, grpo, masking, policy_gradient


def reinforce_loss(logp: Any, logp_old: Any, logp_ref: Any, advantages: Any, mask: Any, *, beta: float = 0.0) -> Tensor:
    """−mean over sequences of A·Σ_t log π(y_t): a completion is one action, and nothing is clipped.

    Called like the losses of `labsrc.grpo`, of which it reads logp, advantages (B,) and mask. A KL penalty belongs in
    the reward here: raises ValueError for beta ≠ 0. Source: Williams 1992; for language models RLOO arXiv 2402.14740.
    """
    if beta != 0:
        raise ValueError(f"beta must be 0, this loss has no KL term: set kl_in_reward=True; got {beta!r}")
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(-1)
    # Padding may hold anything, and the surrogate refuses what is not finite.
    surrogate = policy_gradient.reinforce_surrogate(masking.keep_valid("logp", logp, mask), advantages)
    return -aggregation.mean_of_sequence_sums(surrogate, mask)


def batch_centered(rewards: Any) -> Tensor:
    """r − mean of the whole batch: REINFORCE's baseline without groups, `advantages.centered` of one large group.

    rewards: (P, G). Returns that shape. Source: Williams 1992, reinforcement comparison.
    """
    return advantages.centered(rewards.flatten()).view_as(rewards)


LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "grpo": grpo.grpo_loss,
    "bnpo": grpo.bnpo_loss,
    "dapo": grpo.dapo_loss,
    "dr_grpo": grpo.dr_grpo_loss,
    "gspo": grpo.gspo_loss,
    "luspo": grpo.luspo_loss,
    "cispo": grpo.cispo_loss,
    "sapo": grpo.sapo_loss,
    "vespo": grpo.vespo_loss,
    "reinforce": reinforce_loss,
}

# Their ratio, and so their clip, belongs to a sequence.
SEQUENCE_LEVEL = frozenset({grpo.gspo_loss, grpo.luspo_loss})

ADVANTAGES: Mapping[str, Callable[..., Tensor]] = {
    "standardized": advantages.standardized,
    "centered": advantages.centered,
    "leave_one_out": advantages.leave_one_out,
    "batch_standardized": advantages.batch_standardized,
    "standardized_excluding_missing": advantages.standardized_excluding_missing,
    "batch_centered": batch_centered,
}


def name_of(table: Mapping[str, Callable], entry: str | Callable) -> str:
    """The name under which the table holds a function; for a function of your own, where it lives."""
    if isinstance(entry, str):
        return entry
    known = next((name for name, function in table.items() if function is entry), None)
    return known or f"{entry.__module__}.{entry.__qualname__}"


def look_up(what: str, table: Mapping[str, Callable], entry: str | Callable) -> Callable:
    """The function itself: `entry` if it is one, else the table's. Raises ValueError for an unknown name."""
    if callable(entry):
        return entry
    if entry not in table:
        raise ValueError(f"{what} must be a function or one of {sorted(table)}; got {entry!r}")
    return table[entry]


def accepted(function: Callable, **options: Any) -> dict[str, Any]:
    """Those of `options` that `function` takes as keywords."""
    return {name: value for name, value in options.items() if name in keyword_defaults(function)}


@functools.lru_cache(maxsize=64)  # asked for in every update
def keyword_defaults(function: Callable) -> dict[str, Any]:
    """The keyword-only parameters of `function` and their defaults (`inspect.Parameter.empty` without one)."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
