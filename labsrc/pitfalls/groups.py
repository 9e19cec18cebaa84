"""Which completions are compared with which: the groups are broken, and every shape still fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from labsrc import advantages, toylm
from labsrc.pitfalls.record import Effect, Pitfall
from labsrc.toylm import exact_policy


@dataclass(frozen=True)
class EasyAndHard(toylm.FirstToken):
    """`FirstToken` on two prompts of which the first pays `bonus` for any answer: rewards compare within a prompt only.

    bonus: units of reward.
    """

    name: ClassVar[str] = "easy_and_hard"
    prompts: tuple[tuple[int, ...], ...] = ((1, 3), (2, 5))
    bonus: float = 3.0

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """1 for the target as first token, and the bonus for the first prompt: (B,)."""
        easy = (prompts == torch.tensor(self.prompts[0])).all(-1)
        return super().rewards(prompts, completions, mask) + self.bonus * easy


def advantages_by_prompt(rewards: Tensor, prompt_ids: Tensor, group_size: int) -> Tensor:
    """Standardised advantages (B,) of rewards (B,) that stand in any order: sorted by prompt, grouped, put back."""
    order = prompt_ids.argsort(stable=True)
    groups = rewards[order].view(-1, group_size)
    return advantages.standardized(groups).flatten()[order.argsort()]


def advantages_by_position(rewards: Tensor, prompt_ids: Tensor, group_size: int) -> Tensor:
    """Faulty: neighbours are taken for a group, whatever their prompts."""
    order = torch.arange(len(rewards))
    groups = rewards[order].view(-1, group_size)
    return advantages.standardized(groups).flatten()[order.argsort()]


def assert_zero_sum_by_prompt(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """On a shuffled batch the advantages of each prompt add up to 0."""
    prompt_ids, rewards = torch.tensor([0, 1, 1, 0]), torch.tensor([0.0, 3.0, 4.0, 1.0])
    found = function(rewards, prompt_ids, 2)
    worst = max(abs(found[prompt_ids == prompt].sum()) for prompt in (0, 1))
    assert worst < 1e-6, f"the advantages of a prompt sum to {worst:.4f}"


def rows_of_prompts(prompt_ids: Tensor, group_size: int) -> Tensor:
    """The prompt of each of the P·G rows to generate, the G of one prompt side by side: A A B B."""
    return prompt_ids.repeat_interleave(group_size)


def rows_of_prompts_tiled(prompt_ids: Tensor, group_size: int) -> Tensor:
    """Faulty where rewards are then viewed as (P, G): A B A B."""
    return prompt_ids.repeat(group_size)


def assert_view_gives_groups(function: Callable[[Tensor, int], Tensor]) -> None:
    """Seen as (P, G), every row of the batch holds one prompt."""
    groups = function(torch.tensor([4, 9]), 3).view(-1, 3)
    mixed = (groups != groups[:, :1]).any(-1).sum()
    assert mixed == 0, f"{mixed} of {len(groups)} groups mix prompts"


def guarded_group(rewards: Tensor) -> Tensor:
    """Standardised advantages (P, G); a group of one is refused."""
    return advantages.standardized(rewards)


def unguarded_group(rewards: Tensor) -> Tensor:
    """Faulty: in a group of one the reward is its own mean, and the advantage is 0 whatever it was."""
    std, mean = torch.std_mean(rewards, -1, correction=0, keepdim=True)
    return (rewards - mean) / (std + 1e-4)


def assert_refuses_a_group_of_one(function: Callable[[Tensor], Tensor]) -> None:
    """One completion a prompt is an error, not an advantage of 0."""
    try:
        found = function(torch.tensor([[1.0], [0.0]]))
    except ValueError:
        return
    raise AssertionError(f"groups of one got the advantages {found.flatten().tolist()}")


def target_probability(advantage: Callable[[Tensor], Tensor], *, steps: int = 40) -> float:
    """P(target first), exact and averaged over both prompts, after GRPO on `EasyAndHard` with this advantage."""
    settings = toylm.GrpoSettings(
        task=EasyAndHard(), prompts_per_step=2, group_size=8, steps=steps, lr=0.1, advantage=advantage
    )
    policy = toylm.train(settings, keep_groups=False).policy
    with torch.no_grad():
        return exact_policy.expected_reward(policy, toylm.FirstToken(prompts=settings.task.prompts)).item()


def _on_shuffled_rows(function: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)

    def advantage(rewards: Tensor) -> Tensor:
        ids = rows_of_prompts(torch.arange(len(rewards)), rewards.shape[1])
        order = torch.randperm(len(ids), generator=generator)
        found = function(rewards.flatten()[order], ids[order], rewards.shape[1])
        return found[order.argsort()].view_as(rewards)

    return advantage


def _on_generated_rows(function: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor], Tensor]:
    def advantage(rewards: Tensor) -> Tensor:
        # Where each (prompt, completion) stands among the generated rows.
        place = function(torch.arange(len(rewards)), rewards.shape[1]).argsort(stable=True)
        generated = rewards.flatten()[place.argsort()]
        return advantages.standardized(generated.view_as(rewards)).flatten()[place].view_as(rewards)

    return advantage


def _shuffled_effect() -> Effect:
    runs = (target_probability(_on_shuffled_rows(twin)) for twin in (advantages_by_prompt, advantages_by_position))
    return Effect("P(target) after 40 steps", *runs)


def _layout_effect() -> Effect:
    runs = (target_probability(_on_generated_rows(twin)) for twin in (rows_of_prompts, rows_of_prompts_tiled))
    return Effect("P(target) after 40 steps", *runs)


def _group_of_one_effect() -> Effect:
    def alone(rewards: Tensor) -> Tensor:
        return unguarded_group(rewards.reshape(-1, 1)).view_as(rewards)

    return Effect("P(target) after 40 steps", target_probability(guarded_group), target_probability(alone))


PITFALLS = (
    Pitfall(
        "shuffled groups",
        "The reward rises far too slowly, and completions of easy prompts look better than those of hard ones.",
        advantages_by_prompt,
        advantages_by_position,
        assert_zero_sum_by_prompt,
        _shuffled_effect,
    ),
    Pitfall(
        "two layouts",
        "Generation repeats the prompts as A B A B, the advantage reads A A B B: the reward rises far too slowly.",
        rows_of_prompts,
        rows_of_prompts_tiled,
        assert_view_gives_groups,
        _layout_effect,
    ),
    Pitfall(
        "group of one",
        "Loss and advantage are exactly 0 at every step.",
        guarded_group,
        unguarded_group,
        assert_refuses_a_group_of_one,
        _group_of_one_effect,
    ),
)
