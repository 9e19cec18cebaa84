"""What a method costs: bytes of state, tokens generated, forwards, reward evaluations (chapter 8).

Arithmetic, not measurement: activations, the generation cache, buffers and fragmentation come on top. A network with N
parameters is taken to spend 2N floating-point operations a token forwards and 6N forwards and backwards together.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Workload:
    """One update as a trainer sees it; ValueError for a number out of range.

    parameters: of the policy, and of the reference, which is its copy. prompts: a batch; for DPO, pairs. completions: a
    prompt; G for GRPO. prompt_tokens, completion_tokens: mean lengths. inner_updates: optimiser passes over a batch.
    critic_parameters, reward_parameters: of those networks; 0 reward parameters mean a verifier, which is no network.
    adapter_parameters: as in `trainable_state`; with adapters the reference is the same base with the adapter off.
    keep_reference: False when β = 0 and nothing asks for the reference.
    """

    parameters: float = 7e9
    prompts: int = 16
    completions: int = 64
    prompt_tokens: float = 256
    completion_tokens: float = 1024
    inner_updates: int = 1
    critic_parameters: float = 7e9
    reward_parameters: float = 7e9
    adapter_parameters: float | None = None
    keep_reference: bool = True

    def __post_init__(self) -> None:
        """Refuse what no trainer could run."""
        for name in ("prompts", "completions", "inner_updates"):
            checks.integer_at_least(name, getattr(self, name), 1)
        for name in ("parameters", "prompt_tokens", "completion_tokens"):
            checks.positive(name, getattr(self, name))
        for name in ("critic_parameters", "reward_parameters"):
            checks.non_negative(name, getattr(self, name))
        if self.adapter_parameters is not None:
            checks.positive("adapter_parameters", self.adapter_parameters)

    @property
    def sequence_tokens(self) -> float:
        """Tokens of a prompt with one completion."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def sampled(self) -> int:
        """Completions sampled for the batch."""
        return self.prompts * self.completions


@dataclass(frozen=True)
class Ledger:
    """The four accounts of one update, and the arithmetic they add up to.

    trainable, frozen: bytes of state. generated_tokens: sampled in the loop. trained_tokens: passed forwards and
    backwards through the policy, summed over passes. frozen_tokens: passed forwards without a gradient, summed over
    networks, the policy's own scoring pass included. reward_evaluations: completions scored. flops: floating-point
    operations of all of it.
    """

    trainable: ModelState
    frozen: ModelState
    generated_tokens: float
    trained_tokens: float
    frozen_tokens: float
    reward_evaluations: int
    flops: float


def ppo_ledger(work: Workload) -> Ledger:
    """PPO-RLHF: policy and critic trained, reference and reward model frozen, completions sampled in the loop.

    Source: PPO arXiv 1707.06347 with the KL penalty of arXiv 1909.08593.
    """
    return _online(work, critic_parameters=work.critic_parameters)


def grpo_ledger(work: Workload) -> Ledger:
    """GRPO: `ppo_ledger` without the critic; the price is in `completions`. Source: arXiv 2402.03300."""
    return _online(work, critic_parameters=0)


def dpo_ledger(work: Workload, *, reference_precomputed: bool = False) -> Ledger:
    """DPO: the policy trained on `prompts` pairs, no sampling, no reward; two completions a pair.

    reference_precomputed: the reference's log-probabilities were stored once, so it neither sits in memory nor runs.
    Collecting and labelling the pairs is paid outside the loop and not counted. Source: arXiv 2305.18290.
    """
    tokens = 2 * work.prompts * work.sequence_tokens
    frozen_tokens = 0 if reference_precomputed else tokens
    trained_tokens = work.inner_updates * tokens
    return Ledger(
        trainable=_policy_state(work),
        frozen=frozen_state(0) if reference_precomputed else _reference_state(work),
        generated_tokens=0,
        trained_tokens=trained_tokens,
        frozen_tokens=frozen_tokens,
        reward_evaluations=0,
        flops=work.parameters * (6 * trained_tokens + 2 * frozen_tokens),
    )


def _online(work: Workload, *, critic_parameters: float) -> Ledger:
    tokens = work.sampled * work.sequence_tokens
    generated = work.sampled * work.completion_tokens
    trained = work.inner_updates * tokens
    # Frozen passes: log-probabilities of the snapshot and the reference, values of the critic, scores of the model.
    passes = [work.parameters, work.parameters if work.keep_reference else 0, critic_parameters, work.reward_parameters]
    frozen = tokens * sum(1 for parameters in passes if parameters)
    operations = 2 * generated * work.parameters + 2 * tokens * sum(passes)
    operations += 6 * trained * (work.parameters + critic_parameters)
    reference = _reference_state(work) if work.keep_reference else frozen_state(0)
    return Ledger(
        trainable=_policy_state(work) + trainable_state(critic_parameters),
        frozen=reference + frozen_state(work.reward_parameters),
        generated_tokens=generated,
        trained_tokens=trained,
        frozen_tokens=frozen,
        reward_evaluations=work.sampled,
        flops=operations,
    )


def _policy_state(work: Workload) -> ModelState:
    return trainable_state(work.parameters, adapter_parameters=work.adapter_parameters)


def _reference_state(work: Workload) -> ModelState:
    return frozen_state(work.parameters if work.adapter_parameters is None else 0)
