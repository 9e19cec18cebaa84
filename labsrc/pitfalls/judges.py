"""A judge that moves with the judged: the reward model shares its layers with the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from labsrc import toylm
from labsrc.pitfalls.record import Effect, Pitfall
from labsrc.toylm import reward_model
from labsrc.toylm.model import Decoder, frozen_copy
from labsrc.toylm.reward_model import LearnedReward

_BODY = ("tokens", "positions", "blocks")


@dataclass(frozen=True)
class Judged(toylm.FirstToken):
    """`FirstToken` as seen by a scorer that stands in `bench`; the task's own reward is what was meant."""

    name: ClassVar[str] = "judged"
    bench: list[Decoder] = field(default_factory=list, compare=False)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """The scorer's number: (B,)."""
        with torch.no_grad():
            return reward_model.score(self.bench[0], prompts, completions, mask)


def separate_judge(policy: Decoder, scorer: Decoder) -> Decoder:
    """A scorer for `policy`, frozen where it was fitted."""
    judge = frozen_copy(scorer)
    return judge


def shared_judge(policy: Decoder, scorer: Decoder) -> Decoder:
    """Faulty: the scorer's head on the policy's own layers, which go on training."""
    judge = frozen_copy(scorer)
    judge.tokens, judge.positions, judge.blocks = policy.tokens, policy.positions, policy.blocks
    return judge


def assert_scores_stay(function: Callable[[Decoder, Decoder], Decoder]) -> None:
    """Probe completions have the same scores after the policy has moved."""
    scorer, policy = _fitted_scorer(), _policy_on_body(_fitted_scorer())
    judge = function(policy, scorer)
    probe = torch.tensor([[1, 3]] * 2), torch.tensor([[6, 2], [4, 2]]), torch.ones(2, 2, dtype=torch.bool)
    with torch.no_grad():
        before = reward_model.score(judge, *probe)
        for weight in policy.parameters():
            weight.mul_(1.1)
        drift = (reward_model.score(judge, *probe) - before).abs().max()
    assert drift == 0, f"a probe's score has moved by {drift:.4f}"


def _fitted_scorer() -> Decoder:
    return frozen_copy(reward_model.fitted_scorer(LearnedReward()))


def _policy_on_body(scorer: Decoder) -> Decoder:
    """A fresh policy whose layers are a copy of the scorer's: both come from one base."""
    policy = toylm.new_trainer(toylm.GrpoSettings()).policy
    _copy_body(scorer, policy)
    return policy


def _copy_body(source: Decoder, target: Decoder) -> None:
    for name in _BODY:
        getattr(target, name).load_state_dict(getattr(source, name).state_dict())


@dataclass(frozen=True)
class JudgedRun:
    """Mean reward of each step, as the judge of the run saw it and as the scorer it was made of would have seen it."""

    seen: list[float]
    fitted: list[float]

    @property
    def error(self) -> float:
        """By how much the last reward reported differs from the fitted scorer's, units of reward."""
        return abs(self.seen[-1] - self.fitted[-1])


def run_under(function: Callable[[Decoder, Decoder], Decoder], *, steps: int = 60) -> JudgedRun:
    """GRPO on rewards from the judge that `function` makes of a scorer and the policy, both on one base."""
    scorer, bench = _fitted_scorer(), []
    settings = toylm.GrpoSettings(task=Judged(bench=bench), steps=steps, lr=0.1, beta=0.0)
    trainer = toylm.new_trainer(settings)
    for model in (trainer.policy, trainer.reference):
        _copy_body(scorer, model)
    bench.append(function(trainer.policy, scorer))
    trainer.finish()
    fitted = []
    for step in trainer.groups:
        completions = torch.tensor(step["completions"])
        prompts = torch.tensor(step["prompts"]).expand(len(completions), -1)
        with torch.no_grad():
            scores = reward_model.score(scorer, prompts, completions, torch.ones_like(completions, dtype=torch.bool))
        fitted.append(scores.mean().item())
    return JudgedRun([row["reward_mean"] for row in trainer.monitors], fitted)


def _drift_effect() -> Effect:
    runs = (run_under(twin).error for twin in (separate_judge, shared_judge))
    return Effect("error of the reward reported at step 60, units of reward", *runs)


PITFALLS = (
    Pitfall(
        "drifting judge",
        "The reward on the dashboard is not what the reward model, loaded anew, says of the same completions.",
        separate_judge,
        shared_judge,
        assert_scores_stay,
        _drift_effect,
    ),
)
