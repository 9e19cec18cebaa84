"""Dynamic sampling: what it keeps, what it costs, and when it gives up."""

import pytest
import torch

from labsrc import advantages, binary_groups, toylm
from labsrc.toylm.dynamic_sampling import DynamicSamplingTrainer
from labsrc.toylm.settings import ModelSettings
from labsrc.toylm.tasks import Addition, FirstToken


def settings(**changes):
    chosen = {"group_size": 4, "steps": 10, "lr": 1e-9, "beta": 0.0, "inner_updates": 1, "loss": "dapo", "seed": 1}
    return toylm.GrpoSettings(**(chosen | changes))


def test_no_kept_group_is_constant():
    trainer = DynamicSamplingTrainer(settings(task=Addition(), prompts_per_step=5, model=ModelSettings(width=8)))
    trainer.max_rounds = 1000
    trainer.finish()
    assert not any(any(group["zero_variance"]) for group in trainer.groups)
    assert all(len(group["prompts"]) == 5 for group in trainer.groups)


def test_rounds_per_group_are_those_of_the_closed_form():
    """With one prompt and a policy that stands still, rounds are geometric with mean 1/(1 − wasted share)."""
    trainer = DynamicSamplingTrainer(settings(steps=400), max_rounds=1000)
    p = toylm.evaluate(trainer.policy, trainer.reference, FirstToken())["expected_reward"]
    trainer.finish()
    kept = 1 - binary_groups.wasted_share(p, group_size=4).item()
    rounds = torch.tensor(trainer.rounds, dtype=torch.float64)
    # Four standard errors of the mean of 400 geometric numbers.
    assert abs(rounds.mean().item() - 1 / kept) < 4 * ((1 - kept) ** 0.5 / kept) / 400**0.5


def test_everything_drawn_is_paid_for_and_the_gradient_only_for_what_is_kept():
    trainer = DynamicSamplingTrainer(settings(), max_rounds=1000)
    trainer.finish()
    drawn = sum(trainer.rounds) * 4
    assert trainer.cost.reward_evaluations == drawn
    assert trainer.cost.generated_tokens == 2 * drawn
    assert trainer.cost.trained_forwards == 10 * 4


def test_after_the_last_round_constant_groups_fill_the_batch():
    trainer = DynamicSamplingTrainer(settings(group_size=2, steps=40), max_rounds=1)
    before = {name: weight.clone() for name, weight in trainer.policy.state_dict().items()}
    trainer.step()
    assert trainer.rounds == [1]
    if trainer.groups[0]["zero_variance"] == [True]:
        assert all(torch.equal(weight, before[name]) for name, weight in trainer.policy.state_dict().items())
    trainer.finish()
    shares = [group["zero_variance"][0] for group in trainer.groups]
    assert any(shares) and not all(shares)


def test_a_batch_full_of_signal_is_drawn_once_and_is_the_plain_trainers():
    plain, dynamic = (
        kind(settings(group_size=64, steps=3, lr=0.1)) for kind in (toylm.new_trainer, DynamicSamplingTrainer)
    )
    plain.tabled = False
    plain.finish()
    dynamic.finish()
    assert dynamic.rounds == [1, 1, 1]
    for name, weight in plain.policy.state_dict().items():
        assert torch.equal(weight, dynamic.policy.state_dict()[name])
    assert not advantages.is_constant_group(torch.tensor(dynamic.groups[0]["rewards"])).any()


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_rounds must be a whole number of at least 1; got 0"):
        DynamicSamplingTrainer(settings(), max_rounds=0)
