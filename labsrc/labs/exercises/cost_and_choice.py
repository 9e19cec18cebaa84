"""Exercises of chapter 8: what a run costs, and whether it made anything better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labsrc.labs.exercises.kinds import Choice, Code, Number
from labsrc.ledger import GIB, Workload, frozen_state, grpo_ledger, ppo_ledger, trainable_state
from labsrc.toylm.seeds import chance_of_reversal

_HALF_CRITIC = Workload(critic_parameters=3.5e9)
_GROUPS = Workload(prompts=8, completions=16, completion_tokens=512)
_FIRST, _SECOND = [1.0, 3.0, 4.0], [2.0, 2.0, 3.0]


def _saving() -> float:
    return ppo_ledger(_HALF_CRITIC).memory / grpo_ledger(_HALF_CRITIC).memory


def _full_critic_saving() -> float:
    return ppo_ledger(Workload()).memory / grpo_ledger(Workload()).memory


def _break_even() -> float:
    four = ppo_ledger(Workload(ppo_completions=4)).flops
    return four / grpo_ledger(Workload(completions=2)).flops * 2


def _wrong_without_ties() -> float:
    return sum(a < b for a in _FIRST for b in _SECOND) / 9


def _reversal_trial(function: Callable[..., Any]) -> str | None:
    cases = ((_FIRST, _SECOND), (_SECOND, _FIRST), ([1.0, 1.0], [1.0]), ([0.0, 5.0], [1.0, 1.0, 2.0]))
    for first, second in cases:
        found, wanted = float(function(first, second)), chance_of_reversal(first, second)
        if abs(found - wanted) > 1e-6:
            return f"for {first} and {second} it gives {found:.4f}, wanted {wanted:.4f}"
    return None


EXERCISES = {
    "cost-1": Number(
        answer=lambda: trainable_state(13e9).total / GIB,
        hint="Bytes first: 13e9 times 16. One GiB is 2**30 bytes.",
        reason="208 GB are 193.7 GiB: the same bytes, counted in larger units.",
        mistakes=(
            (lambda: trainable_state(13e9).total / 1e9, "That is in GB, of 10⁹ bytes. A GiB has 2³⁰."),
            (lambda: frozen_state(13e9).total / GIB, "These are the weights alone; training adds 14 bytes to each."),
        ),
    ),
    "cost-2": Number(
        answer=_saving,
        hint="Count in bytes a parameter of the policy: 16 for it, half of 16 for the critic, 2 for each frozen one.",
        reason="28 against 20: a smaller critic was a smaller part of the bill.",
        mistakes=(
            (_full_critic_saving, "That is a critic of the policy's size. This one has half as many parameters."),
            (lambda: 1.5, "You left out the reference and the reward model. They stay, with 2 bytes a parameter."),
        ),
    ),
    "cost-3": Number(
        answer=lambda: grpo_ledger(_GROUPS).generated_tokens,
        hint="Every prompt is answered as many times as its group is large.",
        reason="Prompts times group times length. The prompt's own tokens are read, not generated.",
        mistakes=(
            (lambda: 8 * 512, "That is one completion a prompt. Each prompt has a group."),
            (lambda: 8 * 16, "That is the number of completions. Each has 512 tokens on average."),
        ),
    ),
    "cost-4": Choice(
        correct="b",
        options={
            "a": "It can be done, but every step waits for generation, and the scorer can be gamed.",
            "b": "",
            "c": "More parts are more cost: it samples as well, and trains a critic beside the policy.",
            "d": "Equal rewards give advantages of 0: nothing would be learned at all.",
        },
        hint="What do you have already, and what is expensive?",
        reason="The pairs are there, and no answer has to be generated in the loop.",
    ),
    "cost-5": Number(
        answer=lambda: chance_of_reversal(_FIRST, _SECOND),
        hint="A has the higher mean. Of the nine pairs count those in which A's run is lower, and half of the ties.",
        reason="Three wrong pairs and half a tie out of nine, although A is better on average.",
        mistakes=(
            (_wrong_without_ties, "Ties are missing: one pair is 3 against 3 and counts one half."),
            (lambda: 1 - chance_of_reversal(_FIRST, _SECOND), "That is how often they rank as their means do."),
        ),
    ),
    "cost-6": Code(
        trial=_reversal_trial,
        hint="All differences a − b; their sign turned if the first mean is the lower one; count < 0, and half of = 0.",
        reason="No assumption about the results was made: it counts.",
    ),
    "cost-7": Choice(
        correct="c",
        options={
            "a": "What still rises is the number that misled you.",
            "b": "Less noise climbs the same wrong hill, only more steadily.",
            "c": "",
            "d": "The clip bounds one batch. The distance from the start grows over many.",
        },
        hint="Which of the two measures was not trained on?",
        reason="The held-out check chooses the checkpoint; the reward is what has to be repaired before the next run.",
    ),
    "cost-8": Number(
        answer=_break_even,
        hint="In units of N a completion costs GRPO 2·1024 + 12·1280; the critic adds 8·1280.",
        reason="Four times 1.588: what the critic computed pays for two more completions, not for a group of 64.",
        mistakes=(
            (lambda: 4 * _full_critic_saving(), "That is the factor of the memory. Count operations."),
            (lambda: 4 / (_break_even() / 4), "Turn it round: without a critic GRPO can afford more, not fewer."),
        ),
    ),
}
