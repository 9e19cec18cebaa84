"""The moments of a step's gradient, against real steps on every group there is."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tolerances import RTOL

from labsrc import exact, toylm
from labsrc.toylm import estimators, exact_policy, sampling, start
from labsrc.toylm.rollout import Rollout

TASK = toylm.FirstToken(eos_token=0, max_new_tokens=2, vocabulary=3, target=2, prompts=((1, 2),))
MODEL = toylm.ModelSettings(width=4, heads=1)


def settings(kind=toylm.GrpoSettings, **options):
    return kind(**({"task": TASK, "model": MODEL, "group_size": 3} | options))


def enumerated_moments(asked, critic=None):
    """Mean and variance of the gradient of the loss itself, over all groups of completions, one by one."""
    trainer = toylm.new_trainer(replace(asked, beta=0.0))
    if critic is not None:
        trainer.critic = critic
    listed, prompts = exact_policy.all_completions(asked.task), asked.task.prompt_tokens
    p = exact_policy.policy_table(trainer.policy, asked.task)[0].exp().tolist()
    mean, square = 0.0, 0.0
    for group in itertools.product(range(len(p)), repeat=asked.group_size):
        tokens, mask = listed.tokens[list(group)], listed.mask[list(group)]
        logp = sampling.completion_logp(trainer.policy, prompts, tokens)
        rewards = asked.task.rewards(None, tokens, mask)[None]
        rollout = Rollout(prompts, tokens, mask, rewards, logp.detach(), None, torch.zeros_like(logp))
        judged = trainer.judge(rollout)["advantages"]
        loss = asked.loss_function(logp, logp.detach(), None, judged, mask, **(asked.loss_keywords | {"beta": 0.0}))
        gradient = -exact_policy.flat_gradient(loss, trainer.policy)
        weight = math.prod(p[member] for member in group)
        mean, square = mean + weight * gradient, square + weight * gradient.square().sum()
    return mean, (square - mean.square().sum()).item()


@pytest.mark.parametrize(
    "asked",
    [
        settings(),
        settings(advantage="centered", group_size=2),
        settings(loss="dr_grpo", advantage="leave_one_out", group_size=2),
        settings(loss="gspo", std_eps=0.1, ddof=1, group_size=2),
        settings(toylm.RlooSettings, group_size=2),
        settings(toylm.ReinforceSettings, group_size=2),
        settings(task=toylm.LengthBonus(max_new_tokens=2, vocabulary=3, target=2, prompts=((1, 2),), bonus=0.3)),
    ],
    ids=lambda s: f"{s.method} {s.loss_name} {s.advantage} {s.task.name}",
)
def test_moments_are_those_of_the_loss_over_all_groups_of_completions(asked):
    policy = toylm.new_trainer(asked).policy
    found = estimators.estimator_moments(policy, asked)
    mean, variance = enumerated_moments(asked)
    torch.testing.assert_close(found.mean, mean, rtol=1e-8, atol=1e-12)
    assert found.variance == pytest.approx(variance, rel=1e-8)


def test_moments_with_a_critic_are_those_of_the_loss_over_all_groups():
    task = replace(TASK, eos_token=None)
    asked = settings(toylm.PpoSettings, group_size=2, task=task)
    critic = start.fresh_model(MODEL, task, outputs=1, seed=5)
    found = estimators.estimator_moments(toylm.new_trainer(asked).policy, asked, critic=critic)
    mean, variance = enumerated_moments(asked, critic)
    torch.testing.assert_close(found.mean, mean, rtol=1e-8, atol=1e-12)
    assert found.variance == pytest.approx(variance, rel=1e-8)


@pytest.mark.parametrize("group_size", [2, 5, 16])
def test_leave_one_out_is_unbiased_and_the_group_mean_short_by_one_in_g(group_size):
    policy = toylm.new_trainer(settings()).policy
    unbiased = estimators.estimator_moments(policy, settings(toylm.RlooSettings, group_size=group_size))
    assert unbiased.relative_bias < 1e-10
    short = estimators.estimator_moments(policy, settings(toylm.ReinforceSettings, group_size=group_size))
    assert short.scale == pytest.approx(1 - 1 / group_size, rel=RTOL)
    assert short.cosine == pytest.approx(1, rel=RTOL)
    # The factor is all they differ in, so each carries the same noise for its signal.
    assert short.relative_variance == pytest.approx(unbiased.relative_variance, rel=1e-8)


@pytest.mark.parametrize("group_size", [2, 8])
def test_the_standardised_scale_is_the_weight_of_the_binary_objective(group_size):
    asked = settings(loss="luspo", std_eps=0.0, group_size=group_size)  # token sums: c = 1
    policy = toylm.new_trainer(asked).policy
    p = exact_policy.expected_reward(policy, TASK).detach()
    found = estimators.estimator_moments(policy, asked)
    weight = exact.standardized_objective_weight(p, group_size=group_size).item()
    assert found.scale == pytest.approx(weight, rel=1e-9)
    assert found.cosine == pytest.approx(1, rel=RTOL)


def test_a_critic_with_lambda_one_is_unbiased_whatever_it_says():
    asked = settings(toylm.PpoSettings, loss="dr_grpo", gae_lambda=1.0)
    policy, critic = toylm.new_trainer(asked).policy, start.fresh_model(MODEL, TASK, outputs=1, seed=5)
    found = estimators.estimator_moments(policy, asked, critic=critic)
    assert found.cosine == pytest.approx(1, rel=RTOL)
    assert found.scale == pytest.approx(1 / 2, rel=RTOL)  # dr_grpo divides by the longest length
    biased = estimators.estimator_moments(policy, replace(asked, gae_lambda=0.0), critic=critic)
    assert biased.cosine < 0.99


def test_sampled_steps_scatter_as_the_moments_say():
    asked = settings(toylm.GrpoSettings, group_size=4, beta=0.0)
    trainer = toylm.new_trainer(asked)
    found = estimators.estimator_moments(trainer.policy, asked)
    draws = []
    for _ in range(400):
        drawn, prompts = trainer.draw()
        logp = trainer.logp(prompts, drawn.tokens)
        rollout = trainer.score(prompts, drawn, logp.detach())
        judged = trainer.judge(rollout)["advantages"]
        loss = asked.loss_function(logp, rollout.logp_old, None, judged, drawn.mask, **asked.loss_keywords)
        draws.append(-exact_policy.flat_gradient(loss, trainer.policy))
    along = torch.stack(draws) @ found.value_gradient
    wanted = (found.mean @ found.value_gradient).item()
    assert abs(along.mean().item() - wanted) <= 4 * along.std().item() / 20


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (settings(loss="bnpo"), "loss must weigh each completion by itself; bnpo divides"),
        (settings(task=replace(TASK, prompts=((1, 2), (2, 2)))), "task must have one prompt; got 2"),
        (settings(advantage=lambda rewards: rewards.cumsum(-1)), "advantage must treat the members of a group alike"),
        (settings(toylm.PpoSettings, task=replace(TASK, eos_token=None)), "critic must be given for ppo"),
    ],
)
def test_what_has_no_moments_of_this_kind_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        estimators.estimator_moments(start.fresh_model(MODEL, asked.task), asked)


def test_too_many_reward_combinations_are_refused():
    with pytest.raises(ValueError, match="at most 20000 reward combinations; got"):
        estimators.reward_multisets(20, 20)
