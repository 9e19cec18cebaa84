"""Evaluation apart from the training reward: held-out questions, a lazy verifier, a learned reward that is climbed."""

import pytest
import torch

from labsrc import toylm
from labsrc.toylm import exact_policy, held_out, over_optimization
from labsrc.toylm.reward_model import LearnedReward
from labsrc.toylm.settings import StartSettings

TASK = toylm.Addition()


def test_a_split_is_a_partition_of_the_questions():
    train, rest = held_out.split(TASK, held_out=30, seed=3)
    assert len(train.numbers) == 70 and len(rest.numbers) == 30
    assert sorted(train.numbers + rest.numbers) == list(range(100))
    assert held_out.split(TASK, held_out=30, seed=4)[1] != rest
    assert torch.equal(rest.prompt_tokens, TASK.prompt_tokens[list(rest.numbers)])


def test_a_part_is_judged_by_the_task_and_can_be_trained_on():
    train, _ = held_out.split(TASK, held_out=95)
    answers = train.answers(train.prompt_tokens)
    mask = torch.ones_like(answers, dtype=torch.bool)
    assert train.rewards(train.prompt_tokens, answers, mask).tolist() == [1.0] * 5
    assert train.rewards(train.prompt_tokens, answers.flip(-1), mask).sum() < 5
    settings = toylm.GrpoSettings(task=train, steps=1, prompts_per_step=5, start=StartSettings(steps=2))
    asked = toylm.train(settings).groups[0]["prompts"]
    assert {tuple(prompt) for prompt in asked} == {tuple(prompt) for prompt in train.prompt_tokens.tolist()}


@pytest.mark.parametrize("numbers", [(), (100,), (-1,), (1.0,), (True,)])
def test_numbers_that_are_no_questions_are_refused(numbers):
    with pytest.raises(ValueError, match="numbers must be whole numbers from 0 to 99, at least one"):
        held_out.QuestionsOf(TASK, numbers)
    with pytest.raises(ValueError, match="numbers must all be different"):
        held_out.QuestionsOf(TASK, (1, 1))


@pytest.mark.parametrize("count", [0, 100])
def test_a_split_that_leaves_a_side_empty_is_refused(count):
    with pytest.raises(ValueError, match="held_out must"):
        held_out.split(TASK, held_out=count)


def test_the_lazy_verifier_looks_at_the_first_digit_only():
    prompts = torch.tensor([[7, 10, 8, 11], [1, 10, 1, 11]])  # 15 and 2
    mask = torch.ones(2, 3, dtype=torch.bool)
    wrong_rest = torch.tensor([[1, 0, 12], [2, 9, 9]])
    assert held_out.FirstDigit().rewards(prompts, wrong_rest, mask).tolist() == [1.0, 1.0]
    assert TASK.rewards(prompts, wrong_rest, mask).tolist() == [0.0, 0.0]
    assert held_out.FirstDigit().rewards(prompts, torch.tensor([[5, 1, 12], [3, 12, 12]]), mask).tolist() == [0.0, 0.0]


def settings(**changes):
    task = LearnedReward(pairs=60, steps=200, seed=11)
    return toylm.GrpoSettings(task=task, optimizer="adam", lr=0.01, beta=0.0, group_size=32, inner_updates=1, **changes)


def test_a_climb_reports_exact_numbers_at_the_steps_it_names():
    run = settings(steps=4)
    found = over_optimization.climb(run, every=2)
    assert found.steps == [0, 2, 4] and found.kl[0] == 0.0
    trainer = toylm.train(run)
    assert found.learned[-1] == exact_policy.expected_reward(trainer.policy, run.task).item()
    assert found.intended[-1] == exact_policy.expected_reward(trainer.policy, run.task.task).item()
    assert found.kl[-1] == exact_policy.sequence_kl(trainer.policy, trainer.reference, run.task).item()


def test_a_scorer_of_few_preferences_is_climbed_past_the_best_policy():
    found = over_optimization.climb(settings(steps=100), every=10)
    assert found.learned[-1] > found.learned[found.best] > found.learned[0]
    assert found.intended[found.best] > 0.9 and found.intended[-1] < 0.1
    assert found.intended[0] < found.intended[found.best]


def test_another_task_is_refused():
    with pytest.raises(ValueError, match="task must be a LearnedReward"):
        over_optimization.climb(toylm.GrpoSettings())
    with pytest.raises(ValueError, match="every must be a whole number of at least 1; got 0"):
        over_optimization.climb(settings(steps=1), every=0)
