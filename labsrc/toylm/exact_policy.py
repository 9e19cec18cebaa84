"""The policy of an enumerable task, whole: every completion's probability, E[r], sequence KL, ∇J, and π*.

All completions of a task are listed once, padded like sampled ones. A policy is then a (N, C) table, N prompts and C
completions, and means over prompts give every prompt the same weight.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labsrc import closed_form, exact, kl, masking
from labsrc.toylm import sampling
from labsrc.toylm.prefix_table import PrefixTable
from labsrc.toylm.sampling import Forward
from labsrc.toylm.tasks import Task

# More completions than this are not worth a forward of each at every look.
MAX_COMPLETIONS = 4096


@dataclass(frozen=True)
class AllCompletions:
    """Every completion a task allows, once: (C, T) ids, padded with EOS, and their mask."""

    tokens: Tensor
    mask: Tensor


def is_enumerable(task: Task) -> bool:
    """Whether the task has at most `MAX_COMPLETIONS` sequences of T tokens."""
    return task.vocabulary**task.max_new_tokens <= MAX_COMPLETIONS


def all_completions(task: Task) -> AllCompletions:
    """Every completion of the task. Raises ValueError for a task with too many."""
    if not is_enumerable(task):
        count = f"{task.vocabulary}^{task.max_new_tokens} = {task.vocabulary**task.max_new_tokens}"
        raise ValueError(f"task must have at most {MAX_COMPLETIONS} sequences to be enumerated; got {count}")
    return _all_completions(task.vocabulary, task.max_new_tokens, task.eos_token)


@functools.lru_cache(maxsize=16)
def _all_completions(vocabulary: int, length: int, eos_token: int | None) -> AllCompletions:
    tokens = exact.sequences(vocabulary, length)
    mask = sampling.valid_tokens(tokens, eos_token)
    if eos_token is not None:
        # Sequences that differ only after their EOS are one completion.
        padded_with_eos = (mask | (tokens == eos_token)).all(-1)
        tokens, mask = tokens[padded_with_eos], mask[padded_with_eos]
    return AllCompletions(tokens, mask)


def policy_table(policy: Forward, task: Task, *, temperature: float = 1.0) -> Tensor:
    """log π(y | x) of every completion of every prompt: (N, C), in nats; each row's probabilities sum to 1.

    The gradient flows into the policy. Raises ValueError as `all_completions` does.
    """
    all_completions(task)  # refuses a task whose prefixes would not fit into memory
    return table_from_prefixes(PrefixTable(policy, task, temperature=temperature), task)


def table_from_prefixes(prefixes: PrefixTable, task: Task) -> Tensor:
    """`policy_table` from next-token distributions at hand, of one policy or of several: (…, N, C)."""
    completions = all_completions(task)
    logp = prefixes.logp(completions.tokens.repeat(prefixes.prompts, 1))
    seq_logp = masking.sum_over_tokens(logp, completions.mask.repeat(prefixes.prompts, 1))
    return seq_logp.view(*prefixes.runs, -1, len(completions.tokens))


def reward_table(task: Task) -> Tensor:
    """The reward of every completion of every prompt: (N, C)."""
    completions, prompts = all_completions(task), task.prompt_tokens
    count = len(completions.tokens)
    tokens, mask = completions.tokens.repeat(len(prompts), 1), completions.mask.repeat(len(prompts), 1)
    return task.rewards(sampling.repeat_prompts(prompts, count), tokens, mask).view(len(prompts), count)


def expected_reward(policy: Forward, task: Task, *, temperature: float = 1.0) -> Tensor:
    """J = E[r], exactly, averaged over prompts: a scalar in units of reward, with its gradient."""
    return exact.expected_value(policy_table(policy, task, temperature=temperature), reward_table(task)).mean()


def sequence_kl(policy: Forward, reference: Forward, task: Task, *, temperature: float = 1.0) -> Tensor:
    """KL(π‖π_ref) of whole completions, averaged over prompts: a scalar in nats, with its gradient."""
    tables = (policy_table(model, task, temperature=temperature).exp() for model in (policy, reference))
    return kl.kl_divergence(*tables).mean()


def regularized_objective(
    policy: Forward, reference: Forward, task: Task, *, beta: float, temperature: float = 1.0
) -> Tensor:
    """E[r] − β·KL(π‖π_ref) over whole completions, averaged over prompts: a scalar, with its gradient."""
    p, q = (policy_table(model, task, temperature=temperature).exp() for model in (policy, reference))
    return closed_form.objective(p, q, reward_table(task), beta=beta).mean()


@torch.no_grad()
def optimal_table(reference: Forward, task: Task, *, beta: float, temperature: float = 1.0) -> Tensor:
    """π*(y | x) ∝ π_ref(y | x)·exp(r/β), the one maximiser of `regularized_objective`: (N, C) probabilities."""
    reference_table = policy_table(reference, task, temperature=temperature).exp()
    return closed_form.optimal_policy(reference_table, reward_table(task), beta=beta)


def distance_to_optimum(
    policy: Forward, reference: Forward, task: Task, *, beta: float, temperature: float = 1.0
) -> float:
    """KL(π‖π*) in nats, averaged over prompts: β times it is what the policy still lacks of the best objective."""
    with torch.no_grad():
        p = policy_table(policy, task, temperature=temperature).exp()
    return kl.kl_divergence(p, optimal_table(reference, task, beta=beta, temperature=temperature)).mean().item()


def flat_gradient(value: Tensor, policy: nn.Module) -> Tensor:
    """The gradient of a scalar with respect to all the policy's parameters, as one vector."""
    return torch.cat([part.flatten() for part in torch.autograd.grad(value, list(policy.parameters()))])


def value_gradient(policy: nn.Module, task: Task, *, temperature: float = 1.0) -> Tensor:
    """∇J with respect to the policy's parameters, exactly: what every policy-gradient estimator is after."""
    return flat_gradient(expected_reward(policy, task, temperature=temperature), policy)
