"""What every training method shares: a policy, its frozen reference, an optimiser, a generator, a count of costs."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labsrc.toylm import start
from labsrc.toylm.descent import Descent
from labsrc.toylm.model import frozen_copy, parameter_count
from labsrc.toylm.settings import TrainingSettings

# Fused: one call for all of a parameter's arithmetic, which is most of the time of so small an update.
_OPTIMIZERS = {"sgd": Descent, "adam": functools.partial(torch.optim.Adam, fused=True)}


@dataclass
class Cost:
    """What a run has used so far; a forward is one sequence through one network.

    Counted is what the method asks for. A tiny task may look up what it has just computed; it is counted all the same.
    """

    generated_tokens: int = 0
    trained_forwards: int = 0  # with a gradient: policy and critic
    frozen_forwards: int = 0  # without one: reference, and the critic when it only judges
    reward_evaluations: int = 0
    optimizer_steps: int = 0
    trained_parameters: int = 0


class Trainer(ABC):
    """One run, a step at a time; its state can be taken out and put back between any two steps."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings = settings
        self.policy = start.start_policy(settings)
        self.reference = frozen_copy(self.policy)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.optimizer = _OPTIMIZERS[settings.optimizer](self.parameter_groups())
        self.steps_done = 0
        self.groups: list[dict[str, Any]] = []
        self.monitors: list[dict[str, float | None]] = []
        self.keep_groups = True
        trained = parameter_count(self.policy) + sum(parameter_count(model) for model in self.extra_models().values())
        self.cost = Cost(trained_parameters=trained)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimiser trains, and at which rate."""
        return [{"params": list(self.policy.parameters()), "lr": self.settings.lr}]

    def extra_models(self) -> dict[str, nn.Module]:
        """Networks trained beside the policy."""
        return {}

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.steps_done >= self.settings.steps

    def step(self) -> None:
        """Make one step and remember it."""
        group, monitors = self.advance()
        if self.keep_groups:
            self.groups.append(group())
        self.monitors.append(monitors)
        self.steps_done += 1

    def finish(self) -> None:
        """Make the steps that are left."""
        while not self.finished:
            self.step()

    @abstractmethod
    def advance(self) -> tuple[Any, dict[str, float | None]]:
        """Train for one step; returns a function that makes the step's entry of the record, and its monitors."""

    def update(self, loss: Tensor) -> None:
        """One optimiser step down the gradient of `loss`."""
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = None  # as zero_grad does, without its ceremony
        loss.backward()
        self.optimizer.step()
        self.cost.optimizer_steps += 1

    def state(self) -> dict[str, Any]:
        """Everything the next step depends on, and what has been recorded."""
        return {
            "policy": self.policy.state_dict(),
            "reference": self.reference.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "steps_done": self.steps_done,
            "cost": asdict(self.cost),
            "groups": self.groups,
            "monitors": self.monitors,
            "keep_groups": self.keep_groups,
            "extra_models": {name: model.state_dict() for name, model in self.extra_models().items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put a `state` back; the next step is then the one that would have followed it."""
        self.policy.load_state_dict(state["policy"])
        self.reference.load_state_dict(state["reference"])
        for name, model in self.extra_models().items():
            model.load_state_dict(state["extra_models"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.steps_done = state["steps_done"]
        self.cost = Cost(**state["cost"])
        self.groups, self.monitors = state["groups"], state["monitors"]
        self.keep_groups = state["keep_groups"]


def ragged(values: Tensor, lengths: list[int]) -> list[list[Any]]:
    """The first `lengths` entries of each row as plain lists: what a record holds instead of padding."""
    return [row[:length] for row, length in zip(values.detach().tolist(), lengths, strict=True)]
