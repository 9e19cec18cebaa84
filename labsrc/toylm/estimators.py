"""Bias and variance of what one step computes, against ∇J, exactly: no group is sampled, all are weighed.

At a policy that has just sampled (every ratio is 1) and without a KL term, a step's gradient is (1/G)·Σ_i A_i·g_i,
where g_i = Σ_t c_t·∇log π(y_it) and the loss decides the weights c. The advantages depend on the completions only
through their rewards and treat the members of a group alike, so what is enumerated is how many members earned which
reward: a handful of cases, whatever the group's size.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labsrc import checks
from labsrc.toylm import exact_policy, online, sampling
from labsrc.toylm.model import Decoder
from labsrc.toylm.rollout import Rollout
from labsrc.toylm.settings import OnlineSettings, PpoSettings

MAX_MULTISETS = 20_000


@dataclass(frozen=True)
class EstimatorMoments:
    """Mean and variance of one step's ascent direction in parameter space, beside the gradient it is after.

    mean, value_gradient: (D,), over all parameters of the policy; variance: E‖ĝ − E[ĝ]‖².
    """

    mean: Tensor
    variance: float
    value_gradient: Tensor

    @property
    def scale(self) -> float:
        """How much of ∇J is in the mean: ⟨mean, ∇J⟩/‖∇J‖². An optimiser's step size can undo it."""
        return (self.mean @ self.value_gradient / self.value_gradient.square().sum()).item()

    @property
    def cosine(self) -> float:
        """Of the angle between the mean and ∇J: 1 means that the direction is right whatever the scale."""
        return (self.mean @ self.value_gradient / (self.mean.norm() * self.value_gradient.norm())).item()

    @property
    def relative_bias(self) -> float:
        """‖mean − ∇J‖/‖∇J‖."""
        return ((self.mean - self.value_gradient).norm() / self.value_gradient.norm()).item()

    @property
    def relative_variance(self) -> float:
        """variance/(scale·‖∇J‖)²: the noise of one step, in units of the part of ∇J that it carries."""
        return self.variance / (self.scale**2 * self.value_gradient.square().sum().item())


def estimator_moments(policy: Decoder, settings: OnlineSettings, *, critic: Decoder | None = None) -> EstimatorMoments:
    """Moments of the first inner update's direction −∇loss, with β = 0, for a task of one prompt.

    settings: loss, advantage, group size and temperature are read; critic: for `PpoSettings`, whose G completions are
    independent. Raises ValueError for a task that cannot be enumerated or has several prompts, too many groups of
    reward values, an advantage that does not treat members alike, or a loss in which one completion's weight depends
    on the others' lengths.
    """
    task = settings.task
    if len(task.prompt_tokens) != 1:
        raise ValueError(f"task must have one prompt; got {len(task.prompt_tokens)}")
    completions = exact_policy.all_completions(task)
    rewards = exact_policy.reward_table(task)[0]
    logp = sampling.completion_logp(policy, task.prompt_tokens, completions.tokens, temperature=settings.temperature)
    seq_logp = exact_policy.policy_table(policy, task, temperature=settings.temperature)[0].detach()
    weights = token_weights(settings, logp.detach(), completions.mask)
    target = exact_policy.value_gradient(policy, task, temperature=settings.temperature)
    if isinstance(settings, PpoSettings):
        if critic is None:
            raise ValueError("critic must be given for ppo, whose advantages it makes; got None")
        weights = weights * _critic_advantages(settings, completions, rewards, critic)
    scores = per_completion_gradients(policy, torch.where(completions.mask, weights * logp, 0.0).sum(-1))
    if isinstance(settings, PpoSettings):
        mean, square = _moments(seq_logp.exp(), scores)
        return EstimatorMoments(mean, (square - mean.square().sum().item()) / settings.group_size, target)
    mean, variance = _group_moments(settings, seq_logp.exp(), scores, rewards)
    return EstimatorMoments(mean, variance, target)


def token_weights(settings: OnlineSettings, logp: Tensor, mask: Tensor) -> Tensor:
    """c_t of each completion: what the loss makes of A = 1 at ratio 1, read off the loss itself. (C, T)."""
    together = _loss_slope(settings, logp, mask)
    lengths = mask.sum(-1)
    few = torch.stack([lengths.argmin(), lengths.argmax()])
    if not torch.allclose(_loss_slope(settings, logp[few], mask[few]), together[few], rtol=1e-9):
        raise ValueError(
            f"loss must weigh each completion by itself; {settings.loss_name} divides by the tokens of the whole batch"
        )
    return together


def _loss_slope(settings: OnlineSettings, logp: Tensor, mask: Tensor) -> Tensor:
    leaf = logp.clone().requires_grad_()
    keywords = settings.loss_keywords | {"beta": 0.0}
    loss = settings.loss_function(leaf, logp, None, torch.ones_like(logp[:, 0]), mask, **keywords)
    return -torch.autograd.grad(loss, leaf)[0] * len(logp)


def per_completion_gradients(policy: Decoder, values: Tensor) -> Tensor:
    """The gradient of each entry of `values` (C,) with respect to all parameters: (C, D)."""
    each = torch.eye(len(values), dtype=values.dtype)
    parts = torch.autograd.grad(values, list(policy.parameters()), each, is_grads_batched=True)
    return torch.cat([part.flatten(1) for part in parts], 1)


def _moments(weights: Tensor, vectors: Tensor) -> tuple[Tensor, float]:
    """E[g] and E‖g‖²."""
    return weights @ vectors, (weights @ vectors.square().sum(-1)).item()


def _group_moments(
    settings: OnlineSettings, probabilities: Tensor, scores: Tensor, rewards: Tensor
) -> tuple[Tensor, float]:
    values, kind = torch.unique(rewards, return_inverse=True)
    one_hot = torch.nn.functional.one_hot(kind, len(values)).to(probabilities.dtype)  # (C, R)
    mass = probabilities @ one_hot
    mean_score = (one_hot * probabilities[:, None]).T @ scores / mass[:, None]  # (R, D), E[g | reward]
    square_score = (one_hot * probabilities[:, None]).T @ scores.square().sum(-1) / mass  # (R,), E[‖g‖² | reward]
    members = reward_multisets(len(values), settings.group_size)  # (M, G)
    advantages = _group_by_group(settings, values[members])
    group_mass = multiset_probabilities(members, mass)
    on_value = torch.zeros(len(members), len(values), dtype=advantages.dtype).scatter_add(1, members, advantages)
    squares = torch.zeros_like(on_value).scatter_add(1, members, advantages.square())
    mean = (group_mass @ on_value) @ mean_score / settings.group_size
    # Two members are independent given their rewards, so only a member's own square needs E[‖g‖²].
    gram = mean_score @ mean_score.T
    crossed = ((on_value @ gram) * on_value).sum(1) + squares @ (square_score - gram.diagonal())
    second = (group_mass @ crossed) / settings.group_size**2
    return mean, (second - mean.square().sum()).item()


def _group_by_group(settings: OnlineSettings, rewards: Tensor) -> Tensor:
    # One group at a time: some advantages use statistics of the whole batch, which here is one group.
    found = torch.cat([settings.advantages(group[None]) for group in rewards])
    backwards = settings.advantages(rewards[-1:].flip(-1)).flip(-1)
    mixed = len(rewards) // 2
    backwards_mixed = settings.advantages(rewards[mixed : mixed + 1].flip(-1)).flip(-1)
    if not torch.allclose(torch.cat([backwards, backwards_mixed]), found[[-1, mixed]], rtol=1e-9):
        raise ValueError("advantage must treat the members of a group alike; reversing a group changed them")
    return checks.finite("advantages", found)


def reward_multisets(values: int, group_size: int) -> Tensor:
    """Every way in which G members can share R reward values, order aside: (M, G) indices, each row sorted.

    Raises ValueError for more than `MAX_MULTISETS` of them.
    """
    count = math.comb(group_size + values - 1, group_size)
    if count > MAX_MULTISETS:
        raise ValueError(
            f"a group must have at most {MAX_MULTISETS} reward combinations; "
            f"got {count} from {values} values in {group_size} places"
        )
    return torch.tensor(list(itertools.combinations_with_replacement(range(values), group_size)))


def multiset_probabilities(members: Tensor, mass: Tensor) -> Tensor:
    """How probable each row of `reward_multisets` is, in any order: the multinomial distribution. (M,)."""
    counts = torch.nn.functional.one_hot(members, len(mass)).sum(1).to(mass.dtype)
    ways = torch.lgamma(counts.sum(1) + 1) - torch.lgamma(counts + 1).sum(1)
    return (ways + torch.xlogy(counts, mass).sum(1)).exp()


@torch.no_grad()
def _critic_advantages(
    settings: PpoSettings, completions: exact_policy.AllCompletions, rewards: Tensor, critic: Decoder
) -> Tensor:
    prompts = settings.task.prompt_tokens
    values = sampling.completion_outputs(critic, prompts, completions.tokens).squeeze(-1)
    zeros = torch.zeros_like(values)
    # One group of all completions: its size plays no part where a critic judges.
    rollout = Rollout(prompts, completions.tokens, completions.mask, rewards[None], zeros, None, zeros)
    return online.critic_advantages(replace(settings, beta=0.0), rollout, values)
