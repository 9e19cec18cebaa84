"""The ledgers against sums done by hand."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsrc.ledger import (
    GIB,
    Workload,
    dpo_ledger,
    frozen_state,
    grpo_ledger,
    lora_parameters,
    optimizer_bytes,
    ppo_ledger,
    trainable_state,
)

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


@given(
    parameters=st.floats(1e6, 1e12),
    critic=st.floats(0, 1),
    reward=st.floats(0, 10),
    reference=st.booleans(),
    optimizer_bytes=st.floats(0, 16),
)
def test_no_critic_up_to_the_policys_size_is_more_than_half_of_the_memory(
    parameters, critic, reward, reference, optimizer_bytes
):
    work = Workload(
        parameters=parameters,
        critic_parameters=critic * parameters,
        reward_parameters=reward * parameters,
        keep_reference=reference,
        optimizer_bytes=optimizer_bytes,
    )
    ppo, grpo = ppo_ledger(work), grpo_ledger(work)
    frozen = (2 * reference + 2 * reward) / (4 + optimizer_bytes)  # in states of the policy
    assert ppo.memory / grpo.memory == pytest.approx(1 + critic / (1 + frozen), rel=1e-12)
    assert ppo.memory <= 2 * grpo.memory * (1 + 1e-12)


def test_adapters_leave_gradients_and_optimiser_for_the_adapters_alone():
    state = trainable_state(7e9, adapter_parameters=40e6)
    assert state.weights == 14e9 + 80e6
    assert state.gradients == 80e6
    assert state.optimizer == 480e6
    work = Workload(adapter_parameters=40e6, reward_parameters=0)
    assert grpo_ledger(work).frozen.total == 0  # one base serves as policy and as reference


def test_a_critic_with_adapters_keeps_a_base_of_its_own():
    work = dataclasses.replace(SMALL, adapter_parameters=4, critic_adapter_parameters=2)
    ledger = ppo_ledger(work)
    assert (ledger.policy.total, ledger.critic.total) == (2 * 100 + 4 * 16, 2 * 50 + 2 * 16)
    assert (ledger.reference.total, ledger.reward_model.total) == (0, 20)
    assert ledger.memory == 264 + 132 + 20
    # Trained tokens 192: 2·100 forwards, 2·100 backwards, 6 for each adapter parameter; likewise the critic.
    assert ledger.flops == 2 * 40 * 100 + 2 * 64 * (100 + 100 + 50 + 10) + 192 * (4 * 150 + 6 * 6)


def test_lora_counts_both_thin_matrices():
    # The matrices of a 7B decoder: attention 4 of 4096 x 4096, feed-forward 3 of 4096 x 11008, 32 layers.
    shapes = ([(4096, 4096)] * 4 + [(4096, 11008)] * 3) * 32
    assert lora_parameters(shapes, rank=16) == 16 * 32 * (4 * 8192 + 3 * 15104) == 39_976_960
    with pytest.raises(ValueError, match="rank must be"):
        lora_parameters(shapes, rank=0)
    with pytest.raises(ValueError, match="matrices must be"):
        lora_parameters([(4096, 0)], rank=1)


@pytest.mark.parametrize(
    ("weight_bytes", "moment_bytes", "wanted"), [(2, 8, 12), (2, 2, 6), (2, 0, 4), (4, 8, 8), (4, 2, 2), (4, 0, 0)]
)
def test_short_weights_get_a_master_copy(weight_bytes, moment_bytes, wanted):
    assert optimizer_bytes(weight_bytes=weight_bytes, moment_bytes=moment_bytes) == wanted


def test_bytes_reach_every_network_of_a_workload():
    work = dataclasses.replace(SMALL, weight_bytes=4, gradient_bytes=3, optimizer_bytes=8)
    ledger = ppo_ledger(work)
    assert ledger.policy == trainable_state(100, weight_bytes=4, gradient_bytes=3, optimizer_bytes=8)
    assert ledger.critic == trainable_state(50, weight_bytes=4, gradient_bytes=3, optimizer_bytes=8)
    assert (ledger.reference.total, ledger.reward_model.total) == (400, 40)
    assert dpo_ledger(work).memory == 100 * 15 + 400


def test_ppo_may_sample_less_than_a_group():
    work = dataclasses.replace(SMALL, ppo_completions=1)
    assert ppo_ledger(work).generated_tokens == 2 * 1 * 5 and ppo_ledger(work).reward_evaluations == 2
    assert grpo_ledger(work) == grpo_ledger(SMALL)


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
        ("critic_adapter_parameters", 0), ("ppo_completions", 0), ("weight_bytes", 0), ("gradient_bytes", -1),
        ("optimizer_bytes", -1),
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
    with pytest.raises(ValueError, match="weight_bytes"):
        optimizer_bytes(weight_bytes=0)
    with pytest.raises(ValueError, match="moment_bytes"):
        optimizer_bytes(moment_bytes=-1)
