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
    task = LearnedReward(pairs=300, steps=200, seed=11)
    chosen = {"optimizer": "adam", "lr": 0.005, "beta": 0.0, "group_size": 64, "inner_updates": 1}
    return toylm.GrpoSettings(task=task, **(chosen | changes))


def test_a_climb_reports_exact_numbers_at_the_steps_it_names():
    run = settings(steps=4)
    found = over_optimization.climb(run, every=2)
    assert found.steps == [0, 2, 4] and found.kl[0] == 0.0
    trainer = toylm.train(run)
    assert found.learned[-1] == exact_policy.expected_reward(trainer.policy, run.task).item()
    assert found.intended[-1] == exact_policy.expected_reward(trainer.policy, run.task.task).item()
    assert found.kl[-1] == exact_policy.sequence_kl(trainer.policy, trainer.reference, run.task).item()


def test_a_scorer_of_few_preferences_is_climbed_past_the_best_policy():
    found = over_optimization.climb(settings(steps=80), every=5)
    assert all(later > earlier - 0.01 for earlier, later in zip(found.learned, found.learned[1:], strict=False))
    assert found.intended[found.best] > 0.5 and found.intended[-1] < 0.01
    assert 0.5 < found.kl[found.best] < found.kl[-1]


def test_no_policy_on_the_way_beats_the_closed_form_at_its_price():
    betas = [0.3, 1.0, 3.0, 30.0]
    best, run = over_optimization.frontier(settings(), betas), over_optimization.climb(settings(steps=40), every=5)
    for beta, learned, kl in zip(betas, best.learned, best.kl, strict=True):
        worth = [r - beta * k for r, k in zip(run.learned, run.kl, strict=True)]
        assert max(worth) <= learned - beta * kl + 1e-12
    assert sorted(best.kl, reverse=True) == best.kl and sorted(best.learned, reverse=True) == best.learned


def test_at_a_high_price_the_best_policy_stays_at_the_reference():
    best, run = over_optimization.frontier(settings(), [1e9]), over_optimization.climb(settings(steps=1), every=1)
    assert best.kl[0] < 1e-12
    assert best.learned[0] == pytest.approx(run.learned[0], abs=1e-7)
    assert best.intended[0] == pytest.approx(run.intended[0], abs=1e-7)


def test_another_task_is_refused():
    with pytest.raises(ValueError, match="task must be a LearnedReward"):
        over_optimization.frontier(toylm.GrpoSettings(), [1.0])
    with pytest.raises(ValueError, match="beta must be"):
        over_optimization.frontier(settings(), [0.0])
    with pytest.raises(ValueError, match="task must be a LearnedReward"):
        over_optimization.climb(toylm.GrpoSettings())
    with pytest.raises(ValueError, match="every must be a whole number of at least 1; got 0"):
        over_optimization.climb(settings(steps=1), every=0)
