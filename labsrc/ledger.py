"""What a method costs: bytes of state, tokens generated, forwards, reward evaluations (chapter 8).

Arithmetic, not measurement: activations, the generation cache, buffers and fragmentation come on top. A network with N
parameters is taken to spend 2N floating-point operations a token forwards, 2N more to carry a gradient backwards
through it and 2N to collect that of its weights: 6N in training, but only 4N for a base whose adapters are trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from labsrc import checks

GIB = 2**30


@dataclass(frozen=True)
class ModelState:
    """Bytes that one network keeps: its weights, and what training adds to them."""

    weights: float
    gradients: float = 0.0
    optimizer: float = 0.0

    @property
    def total(self) -> float:
        """All of it, in bytes; divide by `GIB` for GiB."""
        return self.weights + self.gradients + self.optimizer

    def __add__(self, other: ModelState) -> ModelState:
        """The state of two networks side by side."""
        return ModelState(
            self.weights + other.weights, self.gradients + other.gradients, self.optimizer + other.optimizer
        )


def frozen_state(parameters: float, *, weight_bytes: float = 2) -> ModelState:
    """Bytes of a network that is only run: parameters × weight_bytes (2 for bf16).

    Raises ValueError for a negative number of parameters or weight_bytes ≤ 0.
    """
    return ModelState(checks.non_negative("parameters", parameters) * checks.positive("weight_bytes", weight_bytes))


def trainable_state(
    parameters: float,
    *,
    adapter_parameters: float | None = None,
    weight_bytes: float = 2,
    gradient_bytes: float = 2,
    optimizer_bytes: float = 12,
) -> ModelState:
    """Bytes of a network in training: weights, gradients and the optimiser's state.

    parameters: of the network. adapter_parameters: with adapters only these are trained and the base stays frozen; None
    trains everything. optimizer_bytes a trained parameter: 12 is an fp32 master copy and Adam's two fp32 moments.
    Raises ValueError for a negative number or bytes out of range.

    >>> state = trainable_state(7e9)
    >>> state.weights / 1e9, state.gradients / 1e9, state.optimizer / 1e9, round(state.total / GIB, 1)
    (14.0, 14.0, 84.0, 104.3)
    """
    base = frozen_state(parameters, weight_bytes=weight_bytes)
    gradient_bytes = checks.non_negative("gradient_bytes", gradient_bytes)
    optimizer_bytes = checks.non_negative("optimizer_bytes", optimizer_bytes)
    if adapter_parameters is None:
        return ModelState(base.weights, parameters * gradient_bytes, parameters * optimizer_bytes)
    adapters = checks.non_negative("adapter_parameters", adapter_parameters)
    return ModelState(base.weights + adapters * weight_bytes, adapters * gradient_bytes, adapters * optimizer_bytes)


def optimizer_bytes(*, weight_bytes: float = 2, moment_bytes: float = 8) -> float:
    """Bytes of an optimiser's state for each trained parameter: its moments, and a master copy where weights are short.

    moment_bytes: 8 for Adam in fp32, 2 for Adam in 8 bits, 0 for plain SGD. Weights of fewer than 4 bytes get an fp32
    copy, without which small steps would be rounded away. Raises ValueError for bytes out of range.

    >>> optimizer_bytes(), optimizer_bytes(weight_bytes=4)
    (12.0, 8.0)
    """
    master = 0 if checks.positive("weight_bytes", weight_bytes) >= 4 else 4
    return master + checks.non_negative("moment_bytes", moment_bytes)


def lora_parameters(matrices: Iterable[tuple[int, int]], *, rank: int) -> int:
    """Parameters of low-rank adapters: rank·(inputs + outputs) for each matrix of shape (inputs, outputs).

    Raises ValueError for a rank or a side of a matrix below 1. Source: LoRA arXiv 2106.09685, section 4.1.

    >>> lora_parameters([(4096, 4096)] * 4, rank=8)
    262144
    """
    rank = checks.integer_at_least("rank", rank, 1)
    return rank * sum(checks.integer_at_least("matrices", side, 1) for matrix in matrices for side in matrix)


@dataclass(frozen=True)
class Workload:
    """One update as a trainer sees it; ValueError for a number out of range.

    parameters: of the policy, and of the reference, which is its copy. prompts: a batch; for DPO, pairs. completions: a
    prompt; G for GRPO. ppo_completions: PPO's own number of them, which needs no group; None: as many as GRPO.
    prompt_tokens, completion_tokens: mean lengths. inner_updates: optimiser passes over a batch. critic_parameters,
    reward_parameters: of those networks; 0 reward parameters mean a verifier, which is no network. adapter_parameters:
    as in `trainable_state`; with adapters the reference is the same base with the adapter off.
    critic_adapter_parameters: likewise for the critic, which keeps a base of its own. keep_reference: False when β = 0
    and nothing asks for the reference. weight_bytes, gradient_bytes, optimizer_bytes: of every network, as in
    `trainable_state`.
    """

    parameters: float = 7e9
    prompts: int = 16
    completions: int = 64
    ppo_completions: int | None = None
    prompt_tokens: float = 256
    completion_tokens: float = 1024
    inner_updates: int = 1
    critic_parameters: float = 7e9
    reward_parameters: float = 7e9
    adapter_parameters: float | None = None
    critic_adapter_parameters: float | None = None
    keep_reference: bool = True
    weight_bytes: float = 2
    gradient_bytes: float = 2
    optimizer_bytes: float = 12

    def __post_init__(self) -> None:
        """Refuse what no trainer could run."""
        for name in ("prompts", "completions", "inner_updates"):
            checks.integer_at_least(name, getattr(self, name), 1)
        if self.ppo_completions is not None:
            checks.integer_at_least("ppo_completions", self.ppo_completions, 1)
        for name in ("parameters", "prompt_tokens", "completion_tokens", "weight_bytes"):
            checks.positive(name, getattr(self, name))
        for name in ("critic_parameters", "reward_parameters", "gradient_bytes", "optimizer_bytes"):
            checks.non_negative(name, getattr(self, name))
        for name in ("adapter_parameters", "critic_adapter_parameters"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))

    @property
    def sequence_tokens(self) -> float:
        """Tokens of a prompt with one completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Ledger:
    """The four accounts of one update, and the arithmetic they add up to.

    policy, critic, reference, reward_model: bytes of state of each network; nothing where there is none.
    generated_tokens: sampled in the loop. trained_tokens: passed forwards and backwards through the policy, summed over
    passes. frozen_tokens: passed forwards without a gradient, summed over networks, the policy's own scoring pass
    included. reward_evaluations: completions scored. flops: floating-point operations of all of it.
    """

    policy: ModelState
    critic: ModelState
    reference: ModelState
    reward_model: ModelState
    generated_tokens: float
    trained_tokens: float
    frozen_tokens: float
    reward_evaluations: int
    flops: float

    @property
    def trainable(self) -> ModelState:
        """State of the networks in training."""
        return self.policy + self.critic

    @property
    def frozen(self) -> ModelState:
        """State of the networks that are only run."""
        return self.reference + self.reward_model

    @property
    def memory(self) -> float:
        """Bytes of all networks' state."""
        return self.trainable.total + self.frozen.total


def ppo_ledger(work: Workload) -> Ledger:
    """PPO-RLHF: policy and critic trained, reference and reward model frozen, completions sampled in the loop.

    Source: PPO arXiv 1707.06347 with the KL penalty of arXiv 1909.08593.
    """
    completions = work.completions if work.ppo_completions is None else work.ppo_completions
    return _online(work, completions=completions, critic_parameters=work.critic_parameters)


def grpo_ledger(work: Workload) -> Ledger:
    """GRPO: `ppo_ledger` without the critic; the price is in `completions`. Source: arXiv 2402.03300."""
    return _online(work, completions=work.completions, critic_parameters=0)


def dpo_ledger(work: Workload, *, reference_precomputed: bool = False) -> Ledger:
    """DPO: the policy trained on `prompts` pairs, no sampling, no reward; two completions a pair.

    reference_precomputed: the reference's log-probabilities were stored once, so it neither sits in memory nor runs.
    Collecting and labelling the pairs is paid outside the loop and not counted. Source: arXiv 2305.18290.
    """
    tokens = 2 * work.prompts * work.sequence_tokens
    frozen_tokens = 0 if reference_precomputed else tokens
    trained_tokens = work.inner_updates * tokens
    return Ledger(
        policy=_policy_state(work),
        critic=ModelState(0),
        reference=ModelState(0) if reference_precomputed else _reference_state(work),
        reward_model=ModelState(0),
        generated_tokens=0,
        trained_tokens=trained_tokens,
        frozen_tokens=frozen_tokens,
        reward_evaluations=0,
        flops=trained_tokens * _training_flops(work.parameters, work.adapter_parameters)
        + 2 * frozen_tokens * work.parameters,
    )


def _online(work: Workload, *, completions: int, critic_parameters: float) -> Ledger:
    sampled = work.prompts * completions
    tokens = sampled * work.sequence_tokens
    generated = sampled * work.completion_tokens
    trained = work.inner_updates * tokens
    # Frozen passes: log-probabilities of the snapshot and the reference, values of the critic, scores of the model.
    passes = [work.parameters, work.parameters if work.keep_reference else 0, critic_parameters, work.reward_parameters]
    per_trained_token = _training_flops(work.parameters, work.adapter_parameters)
    if critic_parameters:
        per_trained_token += _training_flops(critic_parameters, work.critic_adapter_parameters)
    return Ledger(
        policy=_policy_state(work),
        critic=_critic_state(work) if critic_parameters else ModelState(0),
        reference=_reference_state(work) if work.keep_reference else ModelState(0),
        reward_model=frozen_state(work.reward_parameters, weight_bytes=work.weight_bytes),
        generated_tokens=generated,
        trained_tokens=trained,
        frozen_tokens=tokens * sum(1 for parameters in passes if parameters),
        reward_evaluations=sampled,
        flops=2 * generated * work.parameters + 2 * tokens * sum(passes) + trained * per_trained_token,
    )


def _training_flops(parameters: float, adapter_parameters: float | None) -> float:
    """Operations a token of a forward and a backward pass; a frozen base collects no gradient for its weights."""
    return 6 * parameters if adapter_parameters is None else 4 * parameters + 6 * adapter_parameters


def _policy_state(work: Workload) -> ModelState:
    return _trained(work, work.parameters, work.adapter_parameters)


def _critic_state(work: Workload) -> ModelState:
    return _trained(work, work.critic_parameters, work.critic_adapter_parameters)


def _trained(work: Workload, parameters: float, adapter_parameters: float | None) -> ModelState:
    return trainable_state(
        parameters,
        adapter_parameters=adapter_parameters,
        weight_bytes=work.weight_bytes,
        gradient_bytes=work.gradient_bytes,
        optimizer_bytes=work.optimizer_bytes,
    )


def _reference_state(work: Workload) -> ModelState:
    parameters = work.parameters if work.adapter_parameters is None else 0
    return frozen_state(parameters, weight_bytes=work.weight_bytes)
