"""Everything a run depends on, as frozen dataclasses that refuse what cannot be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from labsrc import checks
from labsrc.toylm import losses, model
from labsrc.toylm.tasks import Addition, FirstToken, Task

OPTIMIZERS = ("sgd", "adam")
LABELS = ("bradley_terry", "higher_reward")


@dataclass(frozen=True)
class ModelSettings:
    """The decoder's size and the seed of its weights; vocabulary and context follow from the task."""

    width: int = 16
    heads: int = 2
    layers: int = 1
    dtype: str = "float64"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what `model.Decoder` would."""
        model.check_shape(self.width, self.heads, self.layers, self.dtype)
        checks.integer_at_least("seed", self.seed, 0)


@dataclass(frozen=True)
class StartSettings:
    """Supervised steps on the task's own answers before training starts: `steps` of Adam at rate `lr`."""

    steps: int = 70
    batch_size: int = 64
    lr: float = 3e-3
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name, smallest in (("steps", 1), ("batch_size", 1), ("seed", 0)):
            checks.integer_at_least(name, getattr(self, name), smallest)
        checks.positive("lr", self.lr)


@dataclass(frozen=True)
class TrainingSettings:
    """What every method has: a task, a model, where it starts, how many steps, the optimiser, β and the seed.

    steps ≥ 1; optimizer "sgd" or "adam" at rate lr > 0; beta ≥ 0, reward per nat; start: None trains the freshly drawn
    weights, otherwise the supervised start comes first and is the reference too.
    """

    method: ClassVar[str]
    task: Task = field(default_factory=FirstToken)
    model: ModelSettings = field(default_factory=ModelSettings)
    start: StartSettings | None = None
    steps: int = 8
    optimizer: str = "sgd"
    lr: float = 0.02
    beta: float = 0.04
    seed: int = 47

    def __post_init__(self) -> None:
        """Refuse values out of range, and a supervised start on a task that has no answers."""
        checks.integer_at_least("steps", self.steps, 1)
        checks.one_of("optimizer", self.optimizer, OPTIMIZERS)
        checks.positive("lr", self.lr)
        checks.non_negative("beta", self.beta)
        checks.integer_at_least("seed", self.seed, 0)
        if self.start is not None and not hasattr(self.task, "answers"):
            raise ValueError(f"start must be None for a task without answers to learn from; got task {self.task!r}")


@dataclass(frozen=True)
class OnlineSettings(TrainingSettings):
    """Methods that sample from the policy they train.

    One step draws `prompts_per_step` prompts, samples `group_size` completions of each at `temperature`, scores them,
    and makes `inner_updates` optimiser steps on them. loss and advantage: a function, or a name in `losses.LOSSES` and
    `losses.ADVANTAGES`; clip_low and clip_high: None for the loss's own default; loss_options: its other keywords.
    kl_in_reward takes β·(log π_old − log π_ref), summed over a completion, off its reward, and leaves the loss without
    a KL term. std_eps and ddof go to the advantage if it takes them.
    """

    group_size: int = 16
    prompts_per_step: int = 1
    inner_updates: int = 2
    temperature: float = 1.0
    loss: str | Callable = "grpo"
    advantage: str | Callable = "standardized"
    clip_low: float | None = None
    clip_high: float | None = None
    loss_options: dict[str, Any] = field(default_factory=dict)
    kl_in_reward: bool = False
    std_eps: float = 1e-8
    ddof: int = 0

    def __post_init__(self) -> None:
        """Refuse, before anything is computed, what a loss or a group could not use."""
        super().__post_init__()
        for name, smallest in (("group_size", 2), ("prompts_per_step", 1), ("inner_updates", 1)):
            checks.integer_at_least(name, getattr(self, name), smallest)
        prompts = len(self.task.prompt_tokens)
        if self.prompts_per_step > prompts:
            raise ValueError(f"prompts_per_step must be at most the task's {prompts}; got {self.prompts_per_step!r}")
        checks.positive("temperature", self.temperature)
        checks.non_negative("std_eps", self.std_eps)
        checks.one_of("ddof", self.ddof, (0, 1))
        losses.look_up("advantage", losses.ADVANTAGES, self.advantage)
        self._check_loss()

    def _check_loss(self) -> None:
        known = losses.keyword_defaults(self.loss_function)
        for name, value in self.loss_keywords.items():
            if name not in known:
                wanted = sorted(set(known) - {"beta"})
                raise ValueError(f"the loss {self.loss_name} takes {wanted}; got {name} = {value!r}")
        if "clip_low" in known:
            for name in ("clip_low", "clip_high"):
                checks.open_unit_interval(name, self.loss_keywords.get(name, known[name]))
        elif "clip_high" in known:
            checks.positive("clip_high", self.loss_keywords.get("clip_high", known["clip_high"]))
        if self.loss_keywords["beta"] > 0 and self.loss_function is losses.reinforce_loss:
            raise ValueError(f"beta must be 0 for a loss without KL term unless kl_in_reward=True; got {self.beta!r}")

    @property
    def loss_function(self) -> Callable:
        """The loss, called like `labsrc.grpo.grpo_loss`."""
        return losses.look_up("loss", losses.LOSSES, self.loss)

    @property
    def loss_name(self) -> str:
        """Its name in the table, or where a function of your own lives."""
        return losses.name_of(losses.LOSSES, self.loss)

    @property
    def loss_keywords(self) -> dict[str, Any]:
        """Every hyper-parameter handed to the loss."""
        chosen = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        fixed = losses.accepted(self.loss_function, max_length=self.task.max_new_tokens)
        return {"beta": 0.0 if self.kl_in_reward else self.beta} | fixed | chosen | self.loss_options

    def advantages(self, rewards: Any) -> Any:
        """(P, G) rewards → (P, G) advantages."""
        function = losses.look_up("advantage", losses.ADVANTAGES, self.advantage)
        return function(rewards, **losses.accepted(function, std_eps=self.std_eps, ddof=self.ddof))


@dataclass(frozen=True)
class GrpoSettings(OnlineSettings):
    """GRPO: standardised group advantages, clipped ratios, β·k3 in the loss (arXiv 2402.03300).

    The defaults are the small experiment of chapter 5: one prompt, 8 groups of 16 completions of 2 tokens, 2 updates a
    group.
    """

    method: ClassVar[str] = "grpo"


@dataclass(frozen=True)
class RlooSettings(OnlineSettings):
    """RLOO: leave-one-out advantages, the completion as one action, KL in the reward (arXiv 2402.14740)."""

    method: ClassVar[str] = "rloo"
    inner_updates: int = 1
    loss: str | Callable = "reinforce"
    advantage: str | Callable = "leave_one_out"
    kl_in_reward: bool = True


@dataclass(frozen=True)
class ReinforceSettings(OnlineSettings):
    """REINFORCE with the batch's mean reward as baseline, KL in the reward (Williams 1992)."""

    method: ClassVar[str] = "reinforce"
    inner_updates: int = 1
    loss: str | Callable = "reinforce"
    advantage: str | Callable = "batch_centered"
    kl_in_reward: bool = True


@dataclass(frozen=True)
class PpoSettings(OnlineSettings):
    """PPO: a critic of the policy's size, generalised advantages per token, KL per token in the reward.

    gae_lambda and gamma in [0, 1]; critic_lr > 0. The critic takes the advantage's place: `advantage`, std_eps and
    ddof are not read, and kl_in_reward must stay True. Source: PPO arXiv 1707.06347; GAE arXiv 1506.02438.
    """

    method: ClassVar[str] = "ppo"
    loss: str | Callable = "bnpo"
    kl_in_reward: bool = True
    critic_lr: float = 0.02
    gae_lambda: float = 0.95
    gamma: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what `OnlineSettings` does, and a critic that cannot learn."""
        super().__post_init__()
        checks.positive("critic_lr", self.critic_lr)
        for name in ("gae_lambda", "gamma"):
            if not 0 <= checks.number(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name} must lie in [0, 1]; got {getattr(self, name)!r}")
        if not self.kl_in_reward:
            raise ValueError("kl_in_reward must be True for ppo, whose KL enters each token's reward; got False")


# prompt, chosen completion, rejected completion
Pair = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
WORKED_PAIRS: tuple[Pair, ...] = (((1, 3), (6, 2), (4, 2)), ((2, 5), (6, 2), (7, 2)))


@dataclass(frozen=True)
class DpoSettings(TrainingSettings):
    """DPO on fixed pairs, or on `sampled_pairs` pairs drawn from the start and labelled by the task's own reward.

    pairs: (prompt, chosen, rejected) triples of token ids; sampled_pairs 0 uses them, otherwise pairs must be empty.
    labels "bradley_terry" chooses a over b with probability σ(r_a − r_b), ties by a coin; "higher_reward" always
    chooses the better one and leaves ties out. beta > 0. batch_size: pairs a step, None for all of them. The defaults
    are the small experiment of chapter 5. Source: arXiv 2305.18290.
    """

    method: ClassVar[str] = "dpo"
    task: Task = field(default_factory=lambda: FirstToken(prompts=((1, 3), (2, 5))))
    steps: int = 30
    lr: float = 0.1
    beta: float = 0.3
    pairs: tuple[Pair, ...] = WORKED_PAIRS
    sampled_pairs: int = 0
    labels: str = "bradley_terry"
    batch_size: int | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Refuse β = 0, no pairs, both kinds of pairs, and tokens the task does not know."""
        super().__post_init__()
        checks.positive("beta", self.beta)
        checks.positive("temperature", self.temperature)
        checks.integer_at_least("sampled_pairs", self.sampled_pairs, 0)
        checks.one_of("labels", self.labels, LABELS)
        if bool(self.pairs) == bool(self.sampled_pairs):
            wanted = "either pairs, or pairs=() and sampled_pairs ≥ 1"
            raise ValueError(f"DPO wants {wanted}; got {len(self.pairs)} pairs and sampled_pairs={self.sampled_pairs}")
        if self.batch_size is not None:
            checks.integer_at_least("batch_size", self.batch_size, 1)
        for pair in self.pairs:
            self._check_pair(pair)

    def _check_pair(self, pair: Pair) -> None:
        prompt_length, longest = self.task.prompt_tokens.shape[1], self.task.max_new_tokens
        for name, tokens, smallest, largest in zip(
            ("prompt", "chosen", "rejected"),
            pair,
            (prompt_length, 1, 1),
            (prompt_length, longest, longest),
            strict=True,
        ):
            if not smallest <= len(tokens) <= largest:
                raise ValueError(f"pairs: {name} must have {smallest} to {largest} tokens; got {tokens!r}")
            if any(not 0 <= token < self.task.vocabulary for token in tokens):
                raise ValueError(f"pairs: {name} must hold ids below {self.task.vocabulary}; got {tokens!r}")
            if len(tokens) < longest and name != "prompt" and self.task.eos_token not in tokens[-1:]:
                raise ValueError(f"pairs: {name} shorter than {longest} tokens must end in the EOS; got {tokens!r}")


def addition_settings(kind: type[TrainingSettings] = GrpoSettings, **changes: Any) -> TrainingSettings:
    """Settings of `kind` for the addition task: a wider decoder that has seen a few answers, Adam, 50 questions a step.

    changes: any field of `kind`. The same task, model and start whatever the method, so a comparison is fair.
    """
    chosen: dict[str, Any] = {
        "task": Addition(),
        "model": ModelSettings(width=32, heads=4),
        "start": StartSettings(),
        "optimizer": "adam",
        "lr": 3e-3,
        "steps": 120,
    }
    if issubclass(kind, OnlineSettings):
        chosen |= {"prompts_per_step": 50, "group_size": 16, "inner_updates": 1, "beta": 0.0}
    if issubclass(kind, PpoSettings):
        chosen |= {"critic_lr": 3e-3}
    if issubclass(kind, DpoSettings):
        chosen |= {"pairs": (), "sampled_pairs": 4000, "labels": "higher_reward"}
        chosen |= {"batch_size": 400, "beta": 0.1}
    return kind(**(chosen | changes))
