"""What is divided by a number of tokens, or divided once too often."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from labsrc import aggregation, masking, policy_gradient, preference, toylm
from labsrc.pitfalls.record import Effect, Pitfall
from labsrc.toylm import sampling, start
from labsrc.toylm.model import frozen_copy


def sequence_logp(logp: Tensor, mask: Tensor) -> Tensor:
    """log π(y | x) of each completion, (B, T) → (B,): a product of probabilities is a sum of logarithms."""
    return masking.sum_over_tokens(logp, mask)


def mean_token_logp(logp: Tensor, mask: Tensor) -> Tensor:
    """Faulty in DPO: the log-probability of no completion; long and short ones change places."""
    return masking.sum_over_tokens(logp, mask) / mask.sum(-1)


def assert_probabilities_sum_to_one(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A coin that stops at heads or after three tosses: the probabilities of all completions sum to 1."""
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]], dtype=torch.bool)
    total = function(torch.full((4, 3), 0.5).log(), mask).exp().sum()
    assert abs(total - 1) < 1e-6, f"the probabilities of all completions sum to {total:.4f}"


def accumulated_mean(values: Tensor, mask: Tensor, slices: int) -> Tensor:
    """The mean over all valid tokens of a batch (B, T) that is worked off in slices, whose losses add up."""
    parts = zip(values.chunk(slices), mask.chunk(slices), strict=True)
    mean = partial(aggregation.mean_over_tokens, token_count=int(mask.sum()))
    return sum(mean(*part) for part in parts)


def accumulated_mean_divided_again(values: Tensor, mask: Tensor, slices: int) -> Tensor:
    """Faulty: the token count is that of the batch already, and the trainer divides by the number of slices too."""
    parts = zip(values.chunk(slices), mask.chunk(slices), strict=True)
    mean = partial(aggregation.mean_over_tokens, token_count=int(mask.sum()))
    return sum(mean(*part) for part in parts) / slices


def assert_slices_change_nothing(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """One slice and four give one loss."""
    values, mask = torch.arange(1.0, 9.0).view(4, 2), torch.tensor([[1, 1], [1, 0], [1, 1], [1, 0]], dtype=torch.bool)
    whole, sliced = function(values, mask, 1), function(values, mask, 4)
    assert abs(whole - sliced) < 1e-5, f"four slices give {sliced / whole:.4f} of the loss of one"


def learned_log_odds(function: Callable[[Tensor, Tensor], Tensor], *, beta: float = 0.3, steps: int = 300) -> float:
    """What DPO ends with: by how many nats log π(chosen)/π(rejected) has risen over the reference's.

    One pair of the toy LM, eight tokens against two, whose long answer wins three times out of four; `function` makes
    sequences of tokens. The closed form is log 3/β.
    """
    task = toylm.LengthBonus()
    policy = start.fresh_model(toylm.ModelSettings(), task)
    reference = frozen_copy(policy)
    prompts = torch.tensor([[1, 3]])
    completions = torch.tensor([[6, 2, 5, 7, 2, 5, 7, 0], [4, 0, 0, 0, 0, 0, 0, 0]])
    mask = masking.completion_mask(completions, eos_token=task.eos_token)
    reference_logp = sampling.completion_logp(reference, prompts, completions)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    for _ in range(steps):
        chosen, rejected = function(sampling.completion_logp(policy, prompts, completions), mask).unbind()
        ref_chosen, ref_rejected = function(reference_logp, mask).unbind()
        optimizer.zero_grad()
        # Labels smoothed by 1/4 are those of a pair that is won three times out of four.
        preference.smoothed_dpo_loss(
            chosen, rejected, ref_chosen, ref_rejected, beta=beta, label_smoothing=0.25
        ).backward()
        optimizer.step()
    with torch.no_grad():
        policy_logp = sampling.completion_logp(policy, prompts, completions)
        moved = sequence_logp(policy_logp, mask) - sequence_logp(reference_logp, mask)
    return (moved[0] - moved[1]).item()


def target_probability(function: Callable[[Tensor, Tensor, int], Tensor], *, optimizer: str = "sgd") -> float:
    """P(target first), exact, after 40 steps of GRPO whose loss is accumulated over four slices by `function`."""

    def loss(logp: Tensor, logp_old: Tensor, logp_ref: Tensor, advantages: Tensor, mask: Tensor, *, beta: float = 0.0):
        surrogate = policy_gradient.clipped_surrogate(
            logp - logp_old, advantages.unsqueeze(-1), clip_low=0.2, clip_high=0.2
        )
        return -function(surrogate, mask, 4)

    rate = {"sgd": 0.1, "adam": 0.003}[optimizer]
    settings = toylm.GrpoSettings(steps=40, lr=rate, beta=0.0, loss=loss, optimizer=optimizer)
    trainer = toylm.train(settings, keep_groups=False)
    return toylm.evaluate(trainer.policy, trainer.reference, settings.task)["expected_reward"]


def _preference_effect() -> Effect:
    runs = (learned_log_odds(twin) for twin in (sequence_logp, mean_token_logp))
    return Effect("log-odds DPO ends with, nats; log 3/β is right", *runs)


def _accumulation_effect() -> Effect:
    runs = (target_probability(twin) for twin in (accumulated_mean, accumulated_mean_divided_again))
    return Effect("P(target) after 40 steps of SGD, four slices", *runs)


PITFALLS = (
    Pitfall(
        "mean instead of sum",
        "DPO moves a pair much further from the reference than its β should allow.",
        sequence_logp,
        mean_token_logp,
        assert_probabilities_sum_to_one,
        _preference_effect,
    ),
    Pitfall(
        "divided twice",
        "Twice the accumulation steps learn half as fast.",
        accumulated_mean,
        accumulated_mean_divided_again,
        assert_slices_change_nothing,
        _accumulation_effect,
    ),
)
