"""Adapters: the base at the start, the base as reference, and nothing else moved."""

import pytest
import torch

from labsrc import toylm
from labsrc.toylm import adapters, sampling
from labsrc.toylm.model import frozen_copy, parameter_count

SETTINGS = toylm.GrpoSettings(steps=6, lr=0.3)
TOKENS = torch.tensor([[1, 3, 6, 2], [1, 3, 4, 0]])


def adapted(rank=2):
    policy = toylm.new_trainer(SETTINGS).policy
    base = frozen_copy(policy)
    return policy, base, adapters.attach(policy, rank=rank)


def test_an_adapted_policy_starts_as_its_base_bit_for_bit():
    policy, base, _ = adapted()
    assert torch.equal(policy(TOKENS)[0], base(TOKENS)[0])


def test_only_the_adapters_are_trained_and_their_number_is_rank_times_the_sides():
    policy, _, trained = adapted(rank=3)
    width = SETTINGS.model.width
    sides = (width + 3 * width) + (width + width) + 2 * (width + 4 * width) + (width + SETTINGS.task.vocabulary)
    assert parameter_count(policy) == sum(weight.numel() for weight in trained) == 3 * sides


def test_training_moves_the_adapters_and_leaves_the_base():
    trainer = adapters.AdapterTrainer(SETTINGS, rank=2)
    plain = toylm.new_trainer(SETTINGS)
    start = trainer.policy(TOKENS)[0].detach()
    trainer.finish()
    assert (trainer.policy(TOKENS)[0] - start).abs().max() > 1e-6
    assert torch.equal(trainer.reference(TOKENS)[0], plain.reference(TOKENS)[0])
    assert trainer.cost.trained_parameters < plain.cost.trained_parameters
    assert list(trainer.reference.parameters()) == []


def test_the_reference_log_probabilities_are_those_of_a_copy():
    trainer = adapters.AdapterTrainer(SETTINGS, rank=2)
    trainer.tabled = False
    copy = toylm.new_trainer(SETTINGS).reference
    trainer.finish()
    prompts, completions = TOKENS[:1, :2], TOKENS[:, 2:]
    expected = sampling.completion_logp(copy, prompts, completions)
    assert torch.equal(trainer.reference_logp(prompts, completions), expected)


def test_switched_off_ends_with_its_block_even_on_an_error():
    policy, base, trained = adapted()
    with torch.no_grad():
        trained[1].fill_(0.5)
    moved = policy(TOKENS)[0]
    with pytest.raises(KeyError), adapters.switched_off(policy):
        assert torch.equal(policy(TOKENS)[0], base(TOKENS)[0])
        raise KeyError
    assert torch.equal(policy(TOKENS)[0], moved) and not torch.equal(moved, base(TOKENS)[0])


def test_the_first_gradient_reaches_only_up_since_up_is_zero():
    """∂/∂A of B·A is 0 where B is 0."""
    policy, _, trained = adapted()
    policy(TOKENS)[0].square().sum().backward()
    assert all(weight.grad.abs().max() == 0 for weight in trained[0::2])
    assert all(weight.grad.abs().max() > 0 for weight in trained[1::2])


@pytest.mark.parametrize("rank, message", [(0, "rank must be a whole"), (9, "rank must be at most 8")])
def test_an_impossible_rank_is_refused(rank, message):
    with pytest.raises(ValueError, match=message):
        adapted(rank)


def test_a_second_set_and_a_scale_of_zero_are_refused():
    policy, _, _ = adapted()
    with pytest.raises(ValueError, match="policy must have no adapters yet; got one with 5"):
        adapters.attach(policy, rank=1)
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        adapters.attach(toylm.new_trainer(SETTINGS).policy, rank=1, scale=0.0)
