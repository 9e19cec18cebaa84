import pytest
import torch
from tolerances import RTOL

from labsrc import toylm
from labsrc.toylm import critic

MASK = torch.tensor([[True, True, True], [True, True, False]])
VALUES = torch.tensor([[0.1, 0.4, 0.7], [0.2, -0.3, 9.0]], dtype=torch.float64)


def test_the_score_is_earned_at_the_last_valid_token_and_the_penalty_at_every_one():
    penalty = torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.2, torch.nan]], dtype=torch.float64)
    rewards = critic.token_rewards([1.0, 2.0], MASK, penalty)
    expected = torch.tensor([[-0.1, -0.2, 0.7], [-0.1, 1.8, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(rewards, expected, rtol=RTOL, atol=1e-15)


def test_advantages_by_hand():
    # γ = 0.5, λ = 0.5, score 1 at the end: δ = (0.1, −0.05, 0.3), A = (0.1 + ¼·A_1, −0.05 + ¼·0.3, 0.3).
    rewards = critic.token_rewards([1.0, 2.0], MASK)
    found = critic.generalized_advantages(rewards, VALUES, MASK, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(found[0], torch.tensor([0.10625, 0.025, 0.3], dtype=torch.float64), rtol=RTOL, atol=0)
    # δ = (−0.35, 2.3); the 9.0 in the padding is nobody's next value.
    torch.testing.assert_close(found[1], torch.tensor([0.225, 2.3, 0.0], dtype=torch.float64), rtol=RTOL, atol=0)


def test_lambda_one_is_the_return_less_the_value_and_lambda_zero_one_step():
    rewards = torch.tensor([[0.5, -0.2, 1.0]], dtype=torch.float64)
    mask = MASK[:1]
    whole = critic.generalized_advantages(rewards, VALUES[:1], mask, gamma=1.0, gae_lambda=1.0)
    torch.testing.assert_close(whole + VALUES[:1], torch.tensor([[1.3, 0.8, 1.0]]).double(), rtol=1e-7, atol=0)
    one_step = critic.generalized_advantages(rewards, VALUES[:1], mask, gamma=1.0, gae_lambda=0.0)
    torch.testing.assert_close(one_step, torch.tensor([[0.8, 0.1, 0.3]]).double(), rtol=1e-6, atol=1e-12)


def test_a_perfect_critic_leaves_no_advantage():
    rewards = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    values = torch.ones(1, 3, dtype=torch.float64)
    for gae_lambda in (0.0, 0.5, 1.0):
        found = critic.generalized_advantages(rewards, values, MASK[:1], gamma=1.0, gae_lambda=gae_lambda)
        assert found.abs().max() == 0


def test_the_value_loss_counts_valid_tokens_only_and_leaves_the_returns_alone():
    values, returns = VALUES.clone().requires_grad_(), (VALUES + 1).requires_grad_()
    loss = critic.value_loss(values, returns, MASK)
    assert loss.item() == pytest.approx(0.5, rel=RTOL)
    loss.backward()
    assert returns.grad is None
    torch.testing.assert_close(values.grad, torch.where(MASK, -0.2, 0.0).double(), rtol=1e-6, atol=0)


def test_the_critic_learns_what_the_policy_earns():
    settings = toylm.PpoSettings(steps=60, optimizer="adam", lr=1e-9, critic_lr=0.01, beta=0.0, group_size=128)
    trainer = toylm.train(settings)
    with torch.no_grad():
        value_of_the_prompt = trainer.critic(torch.tensor([[1, 3]]))[0][0, -1, 0].item()
        after_target, after_another = trainer.critic(torch.tensor([[1, 3, 6], [1, 3, 5]]))[0][:, -1, 0].tolist()
    probability = training_probability(trainer)
    assert abs(value_of_the_prompt - probability) < 0.1
    assert after_target > 0.7 and abs(after_another) < 0.2


def training_probability(trainer):
    return toylm.evaluate(trainer.policy, trainer.reference, trainer.settings.task)["expected_reward"]
