"""Mean lengths of right and wrong answers, against the enumeration of all completions."""

import math

import pytest
import torch

from labsrc import toylm
from labsrc.toylm import exact_policy
from labsrc.toylm.lengths import mean_lengths

TASK = toylm.FirstToken(eos_token=0, max_new_tokens=4)


def test_they_are_those_of_all_completions_up_to_sampling():
    policy = toylm.new_trainer(toylm.GrpoSettings(task=TASK)).policy
    found = mean_lengths(policy, TASK, samples=20_000)
    every = exact_policy.all_completions(TASK)
    weights = exact_policy.policy_table(policy, TASK).detach()[0].exp()
    lengths, first = every.mask.sum(-1).double(), every.tokens[:, 0]
    for kept, sampled in ((first == 6, found.right), ((first != 6) & (first != 0), found.wrong)):
        mean = (weights[kept] * lengths[kept]).sum() / weights[kept].sum()
        spread = ((weights[kept] * (lengths[kept] - mean) ** 2).sum() / weights[kept].sum()).sqrt()
        # Four standard errors of the share that was drawn.
        assert abs(sampled - mean) < 4 * spread / math.sqrt(20_000 * weights[kept].sum())
    assert abs(found.right_share - weights[first == 6].sum()) < 4 * 0.5 / math.sqrt(20_000)


def test_one_seed_gives_one_answer_and_bad_input_is_refused():
    policy = toylm.new_trainer(toylm.GrpoSettings(task=TASK)).policy
    assert mean_lengths(policy, TASK, samples=64) == mean_lengths(policy, TASK, samples=64)
    with pytest.raises(ValueError, match="task must have an eos_token"):
        mean_lengths(policy, toylm.FirstToken())
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1; got 0"):
        mean_lengths(policy, TASK, samples=0)


def test_a_mean_per_sequence_parts_right_from_wrong_lengths_and_a_fixed_length_does_not():
    """The claim of chapter 6, on three seeds: wrong answers grow past right ones only where 1/|o| stands."""
    for seed in (1, 2, 3):
        gaps = {}
        for loss in ("grpo", "dr_grpo"):
            settings = toylm.GrpoSettings(
                task=toylm.FirstToken(eos_token=0, max_new_tokens=12),
                loss=loss,
                beta=0.0,
                steps=100,
                optimizer="adam",
                lr=2e-3,
                group_size=64,
                inner_updates=1,
                seed=seed,
            )
            found = mean_lengths(toylm.train(settings, keep_groups=False).policy, settings.task)
            gaps[loss] = found.wrong - found.right
        assert gaps["grpo"] > gaps["dr_grpo"] + 2
        assert torch.tensor(gaps["grpo"]) > 1
