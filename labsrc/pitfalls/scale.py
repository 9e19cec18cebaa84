"""By what an advantage is divided: the wrong deviation, a part of the group, or almost nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labsrc import advantages, toylm
from labsrc.pitfalls.record import Effect, Pitfall


def population_scaled(rewards: Tensor) -> Tensor:
    """Advantages (P, G) in population deviations, as this book's recipes assume."""
    return advantages.standardized(rewards, std_eps=0.0, ddof=0)


def sample_scaled(rewards: Tensor) -> Tensor:
    """Faulty beside such a recipe: every advantage is smaller by √((G − 1)/G). `Tensor.std` does this by default."""
    return advantages.standardized(rewards, std_eps=0.0, ddof=1)


def assert_squares_sum_to_group_size(function: Callable[[Tensor], Tensor]) -> None:
    """Divided by the population deviation, the squares of a group's advantages sum to G."""
    total = function(torch.tensor([[0.0, 1.0]])).square().sum()
    assert abs(total - 2) < 1e-5, f"ΣA² of a group of 2 is {total:.4f}"


def gathered_advantages(rewards_by_rank: Tensor) -> Tensor:
    """(R, P, G/R) rewards, R processes with a share of every group each: the group is whole before it is normalised."""
    whole = advantages.standardized(torch.cat(list(rewards_by_rank), -1))
    return torch.stack(whole.chunk(len(rewards_by_rank), -1))


def per_rank_advantages(rewards_by_rank: Tensor) -> Tensor:
    """Faulty: each process compares a completion with its own share of the group only."""
    return advantages.standardized(rewards_by_rank)


def assert_same_on_any_number_of_ranks(function: Callable[[Tensor], Tensor]) -> None:
    """One process and two give a completion the same advantage."""
    group = torch.tensor([[0.0, 1.0, 4.0, 7.0]])
    alone = function(group.unsqueeze(0))[0]
    gap = (torch.cat(list(function(torch.stack(group.chunk(2, -1)))), -1) - alone).abs().max()
    assert gap < 1e-5, f"on two ranks an advantage differs by {gap:.4f}"


def exact_zero_for_equal(rewards: Tensor) -> Tensor:
    """Standardised advantages (P, G) with a tiny guard; a group of equal rewards gets exactly 0."""
    return advantages.standardized(rewards, std_eps=1e-8)


def residue_for_equal(rewards: Tensor) -> Tensor:
    """Faulty in float32: r − mean(r) of equal rewards is a rounding residue, as large as the guard."""
    mean, std = rewards.mean(-1, keepdim=True), rewards.std(-1, correction=0, keepdim=True)
    return (rewards - mean) / (std + 1e-8)


def assert_equal_rewards_give_zero(function: Callable[[Tensor], Tensor]) -> None:
    """Nine equal rewards say nothing, in float32 too."""
    # Nine times 0.9 is rounded, in whatever order a machine adds.
    largest = function(torch.full((1, 9), 0.9, dtype=torch.float32)).abs().max()
    assert largest == 0, f"equal rewards give advantages of {largest:.4f}"


def target_probability(advantage: Callable[[Tensor], Tensor], *, group_size: int, steps: int = 40) -> float:
    """P(target first), exact, after GRPO on one prompt with this advantage."""
    settings = toylm.GrpoSettings(group_size=group_size, steps=steps, lr=0.1, advantage=advantage)
    trainer = toylm.train(settings, keep_groups=False)
    return toylm.evaluate(trainer.policy, trainer.reference, settings.task)["expected_reward"]


def _deviation_effect() -> Effect:
    runs = (target_probability(twin, group_size=2, steps=200) for twin in (population_scaled, sample_scaled))
    return Effect("P(target), G = 2, after 200 steps", *runs)


def _ranks_effect(ranks: int = 8) -> Effect:
    def on_ranks(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda rewards: torch.cat(list(function(torch.stack(rewards.chunk(ranks, -1)))), -1)

    runs = (target_probability(on_ranks(twin), group_size=16) for twin in (gathered_advantages, per_rank_advantages))
    return Effect("P(target), G = 16 on 8 ranks, after 40 steps", *runs)


def drift_on_equal_rewards(function: Callable[[Tensor], Tensor], *, steps: int = 40) -> float:
    """KL(π‖start) in nats, exact, after GRPO without a KL term where every completion earns 0.9 in float32."""

    def advantage(rewards: Tensor) -> Tensor:
        return function(torch.full_like(rewards, 0.9, dtype=torch.float32)).to(rewards.dtype)

    settings = toylm.GrpoSettings(group_size=9, steps=steps, lr=0.1, beta=0.0, advantage=advantage)
    trainer = toylm.train(settings, keep_groups=False)
    return toylm.evaluate(trainer.policy, trainer.reference, settings.task)["sequence_kl"]


def _residue_effect() -> Effect:
    runs = (drift_on_equal_rewards(twin) for twin in (exact_zero_for_equal, residue_for_equal))
    return Effect("KL to the start in nats, all rewards equal, after 40 steps", *runs)


PITFALLS = (
    Pitfall(
        "sample deviation",
        "A recipe copied from another library learns more slowly, most of all with small groups.",
        population_scaled,
        sample_scaled,
        assert_squares_sum_to_group_size,
        _deviation_effect,
    ),
    Pitfall(
        "normalised per rank",
        "The same settings learn differently on another number of devices.",
        gathered_advantages,
        per_rank_advantages,
        assert_same_on_any_number_of_ranks,
        _ranks_effect,
    ),
    Pitfall(
        "equal rewards, residue",
        "The policy moves although every completion earns the same.",
        exact_zero_for_equal,
        residue_for_equal,
        assert_equal_rewards_give_zero,
        _residue_effect,
    ),
)
