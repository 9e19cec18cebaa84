"""The ledgers against sums done by hand."""

import dataclasses

import pytest

from labsrc.ledger import GIB, Workload, dpo_ledger, frozen_state, grpo_ledger, ppo_ledger, trainable_state

SMALL = Workload(
    parameters=100, prompts=2, completions=4, prompt_tokens=3, completion_tokens=5, inner_updates=3,
    critic_parameters=50, reward_parameters=10,
)  # fmt: skip


def test_seven_billion_parameters_need_112_gb_of_state():
    state = trainable_state(7e9)
    assert (state.weights, state.gradients, state.optimizer) == (14e9, 14e9, 84e9)
    assert state.total == 112e9
    assert round(state.total / GIB, 1) == 104.3


def test_a_critic_of_the_same_size_doubles_the_trainable_state_and_grpo_has_none():
    work = Workload()
    assert ppo_ledger(work).trainable.total == 2 * 112e9
    assert grpo_ledger(work).trainable.total == 112e9


def test_dropping_the_critic_is_far_from_ten_times_cheaper():
    work = Workload()
    ppo, grpo = ppo_ledger(work), grpo_ledger(work)
    memory = (ppo.trainable.total + ppo.frozen.total) / (grpo.trainable.total + grpo.frozen.total)
    assert memory == (224 + 28) / (112 + 28)
    # Generation 2·1024/1280; scoring passes 2 each for snapshot, reference, critic, reward model; training 6 a network.
    generated = 2 * 1024 / 1280
    assert ppo.flops / grpo.flops == pytest.approx((generated + 8 + 12) / (generated + 6 + 6), rel=1e-12)


def test_adapters_leave_gradients_and_optimiser_for_the_adapters_alone():
    state = trainable_state(7e9, adapter_parameters=40e6)
    assert state.weights == 14e9 + 80e6
    assert state.gradients == 80e6
    assert state.optimizer == 480e6
    work = Workload(adapter_parameters=40e6, reward_parameters=0)
    assert grpo_ledger(work).frozen.total == 0  # one base serves as policy and as reference


def test_an_online_update_by_hand():
    ledger = ppo_ledger(SMALL)
    assert ledger.generated_tokens == 2 * 4 * 5
    assert ledger.reward_evaluations == 8
    assert ledger.trained_tokens == 3 * 8 * 8
    assert ledger.frozen_tokens == 4 * 64  # snapshot, reference, critic, reward model
    assert ledger.flops == 2 * 40 * 100 + 2 * 64 * (100 + 100 + 50 + 10) + 6 * 192 * (100 + 50)
    assert ledger.frozen.total == 2 * (100 + 10)


def test_a_verifier_and_no_reference_leave_one_frozen_pass():
    ledger = grpo_ledger(dataclasses.replace(SMALL, reward_parameters=0, keep_reference=False))
    assert ledger.frozen.total == 0
    assert ledger.frozen_tokens == 64
    assert ledger.reward_evaluations == 8


def test_dpo_generates_nothing_and_may_precompute_its_reference():
    ledger = dpo_ledger(SMALL)
    assert (ledger.generated_tokens, ledger.reward_evaluations) == (0, 0)
    assert ledger.trained_tokens == 3 * 2 * 2 * 8
    assert ledger.flops == 100 * (6 * 96 + 2 * 32)
    stored = dpo_ledger(SMALL, reference_precomputed=True)
    assert stored.frozen.total == stored.frozen_tokens == 0
    assert stored.flops == 100 * 6 * 96


def test_twice_the_group_is_twice_the_sampling_and_no_more_state():
    once, twice = (grpo_ledger(dataclasses.replace(SMALL, completions=n)) for n in (4, 8))
    assert twice.generated_tokens == 2 * once.generated_tokens
    assert twice.flops == 2 * once.flops
    assert twice.trainable == once.trainable


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parameters", 0), ("prompts", 0), ("completions", 1.5), ("prompt_tokens", -1), ("completion_tokens", 0),
        ("inner_updates", 0), ("critic_parameters", -1), ("reward_parameters", float("nan")), ("adapter_parameters", 0),
    ],
)  # fmt: skip
def test_a_workload_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        Workload(**{name: value})


def test_bytes_out_of_range_are_refused_by_name():
    with pytest.raises(ValueError, match="parameters"):
        frozen_state(-1)
    with pytest.raises(ValueError, match="weight_bytes"):
        frozen_state(1, weight_bytes=0)
    with pytest.raises(ValueError, match="gradient_bytes"):
        trainable_state(1, gradient_bytes=-1)
    with pytest.raises(ValueError, match="optimizer_bytes"):
        trainable_state(1, optimizer_bytes=float("inf"))
    with pytest.raises(ValueError, match="adapter_parameters"):
        trainable_state(1, adapter_parameters=-1)
