"""Climbing the clipped surrogate: one step by hand, rest points by proof, invariants, refusals."""

import math

import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import clipped_ascent
from labsrc.kl import kl_divergence


def f64(values) -> Tensor:
    return tensor(values, dtype=torch.float64)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


OLD, SIGNAL = f64([0.5, 0.3, 0.2]), f64([0.4, -0.6, -0.1])


def policies(size: int = 3):
    weights = st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size)
    return weights.map(lambda w: f64(w) / sum(w))


# ---------------------------------------------------------------- the surrogate and one step


def test_the_expected_surrogate_by_hand_with_one_action_clipped_at_each_edge():
    # Ratios 1.3, 0.5 and 1.0: the first praised and past 1.2, the second blamed and past 0.8.
    policy = f64([0.65, 0.15, 0.20])
    value = clipped_ascent.expected_surrogate(policy.log(), OLD, SIGNAL)
    close(value, 0.5 * 1.2 * 0.4 + 0.3 * 0.8 * -0.6 + 0.2 * -0.1)
    wide = clipped_ascent.expected_surrogate(policy.log(), OLD, SIGNAL, clip_low=0.6, clip_high=0.4)
    close(wide, policy @ SIGNAL)


def test_the_gradient_of_the_expected_surrogate_is_the_derivative():
    assert_gradient(lambda z: clipped_ascent.expected_surrogate(z, OLD, SIGNAL), f64([0.65, 0.15, 0.20]).log())


def test_the_first_step_is_that_of_the_expected_reward():
    # At ρ = 1 nothing is clipped: the gradient on the logits is old·(A − E[A]).
    step = 0.3 * OLD * (SIGNAL - OLD @ SIGNAL)
    expected = (OLD.log() + step).softmax(-1) / OLD
    ratios = clipped_ascent.ascend(OLD, SIGNAL, steps=1, lr=0.3)
    close(ratios, torch.stack([torch.ones(3, dtype=torch.float64), expected]))


def test_with_radii_out_of_reach_the_climb_is_that_of_the_expected_reward_and_with_narrow_ones_it_is_not():
    logits = OLD.log()
    for _ in range(4):
        p = logits.softmax(-1)
        logits = logits + p * (SIGNAL - p @ SIGNAL)
    wide = clipped_ascent.ascend(OLD, SIGNAL, steps=4, lr=1.0, clip_low=0.9, clip_high=0.9)[-1]
    close(wide, logits.softmax(-1) / OLD)
    for narrow in ({"clip_low": 0.05, "clip_high": 0.9}, {"clip_low": 0.9, "clip_high": 0.05}):
        ratios = clipped_ascent.ascend(OLD, SIGNAL, steps=4, lr=1.0, **narrow)[-1]
        assert (ratios - wide).abs().max() > 0.01


@settings(max_examples=20)
@given(policies(), st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_every_row_of_ratios_is_a_policy_over_the_old_one_and_runs_do_not_meet(old, signal):
    signal = f64(signal)
    ratios = clipped_ascent.ascend(old, signal, steps=5, lr=0.5)
    close((ratios * old).sum(-1), torch.ones(6))
    both = clipped_ascent.ascend(torch.stack([old, OLD]), torch.stack([signal, SIGNAL]), steps=5, lr=0.5)
    close(both[0], ratios)


# ---------------------------------------------------------------- where the climb rests


def kept(ratios: Tensor, signal: Tensor) -> Tensor:
    return ~(((signal > 0) & (ratios > 1.2)) | ((signal < 0) & (ratios < 0.8)))


@given(policies(), policies())
def test_the_gradient_vanishes_only_where_every_action_is_past_its_edge(old, policy):
    signal = f64([1.0, -1.0, 0.5])
    signal = signal - old @ signal
    if signal.abs().min() < 1e-3:
        return
    leaf = policy.log().requires_grad_()
    (gradient,) = torch.autograd.grad(clipped_ascent.expected_surrogate(leaf, old, signal), leaf)
    still_moves = kept(policy / old, signal).any().item()
    assert bool(gradient.abs().max() > 0) == still_moves


def test_a_bad_answer_of_a_fifth_is_driven_to_a_fifth_of_itself_by_two_good_ones_held_to_their_edge():
    # Both good answers must reach 1.2 before anything rests; that leaves 1 − 1.2·0.8 = 0.04 for the bad one.
    old = f64([0.5, 0.3, 0.2])
    ratios = clipped_ascent.ascend(old, f64([0.2, 0.2, -0.8]), steps=3000, lr=0.1)
    assert ratios[-1, 2].item() == pytest.approx(0.2, abs=0.01)
    assert (ratios[-1, :2] - 1.2).abs().max() < 0.01
    # Steps are short, so this is no overshoot.
    assert (ratios[1:] / ratios[:-1]).log().abs().max() < 0.05


def test_where_the_good_ones_hold_more_than_five_sixths_there_is_no_rest_and_the_bad_one_dies_out():
    old = f64([0.6, 0.3, 0.1])
    ratios = clipped_ascent.ascend(old, f64([0.1, 0.1, -0.9]), steps=4000, lr=0.5)[:, 2]
    assert 0.2 > ratios[1000] > 1.2 * ratios[2000] > 1.44 * ratios[4000] > 0


def test_one_long_step_from_the_old_policy_is_not_held_by_the_clip_at_all():
    uniform, signal = f64([1 / 3, 1 / 3, 1 / 3]), f64([1.0, 0.0, -1.0])
    ratios = clipped_ascent.ascend(uniform, signal, steps=1, lr=100.0)[-1]
    assert kl_divergence(ratios / 3 / (ratios / 3).sum(), uniform).item() == pytest.approx(math.log(3), abs=1e-6)


def test_the_search_finds_what_the_proof_says_and_every_run_leaves_the_interval():
    found = clipped_ascent.search_runs(steps=1000)
    # Partitions of 10 into 3: 8; tables of three 0/1 rewards that are not all equal: 6.
    assert found.tried == 8 * 6
    assert found.left == found.tried
    # One bad answer of a tenth: (8, 1, 1) twice, (7, 2, 1), (6, 3, 1) and (5, 4, 1). One more run is only slow.
    assert (found.restless, found.moving) == (5, 6)
    for run, ratio in (
        (found.lowest, min(found.lowest.final_ratios)),
        (found.highest, max(found.highest.final_ratios)),
    ):
        old, rewards = f64(run.policy_old), f64(run.rewards)
        again = clipped_ascent.ascend(old, rewards - old @ rewards, steps=1000, lr=0.1)
        close(run.ratios, again)
        assert ratio in run.final_ratios
    assert min(found.lowest.final_ratios) == pytest.approx(0.2, abs=0.01)
    # One good answer of a tenth: the bad ones stop at 0.8·0.9, and the rest, 0.28, is its own.
    assert found.highest.rewards == [0.0, 0.0, 1.0]
    assert max(found.highest.final_ratios) == pytest.approx(2.8, abs=0.02)


def test_with_wider_radii_more_runs_can_never_rest():
    # (1 + clip)·g reaches 1 for no g up to 0.9; for g = 0.9 (5 runs); for 0.8 too (6 more); for 0.7 too (5 more).
    for clip, restless in ((0.05, 0), (0.2, 5), (0.25, 11), (0.5, 16)):
        found = clipped_ascent.search_runs(steps=1, clip=clip)
        assert found.restless == restless
        assert found.moving == found.tried  # one short step takes nobody to an edge


@pytest.mark.parametrize(("good", "rest"), [(0.25, (1.3, 0.9)), (0.4, (1.3, 0.8)), (0.1, (1.9, 0.9))])
def test_two_answers_rest_at_both_edges_only_where_the_two_radii_balance(good, rest):
    # 0.3·g = 0.1·(1 − g) at g = 1/4. Above it the bad one has 1 − 1.3·g left, below it the good one 1 − 0.9·(1 − g).
    ratios = clipped_ascent.ascend(
        f64([good, 1 - good]), f64([1 - good, -good]), steps=4000, lr=0.02, clip_low=0.1, clip_high=0.3
    )
    close(ratios[-1], rest, atol=0.01, rtol=0)  # a step over an edge is not longer than that


# ---------------------------------------------------------------- one epoch in mini-batches


def epoch(**changes):
    options = {"rollouts": 8192, "minibatch": 512, "lr": 0.5, "generator": torch.Generator().manual_seed(0)}
    return clipped_ascent.one_epoch([0.1, 0.3, 0.6], [0.9, -0.1, -0.1], **(options | changes))


def test_sixteen_mini_batches_are_sixteen_updates_and_only_the_first_is_on_policy():
    run = epoch()
    assert len(run.clipped) == 16
    assert run.ratios.shape == (17, 3)
    close(run.ratios[0], torch.ones(3))
    assert ((run.ratios[1:] - 1).abs().amax(-1) > 0.01).all()
    assert run.clipped[0] == 0.0
    assert run.clipped[-1] > 0.05


def test_the_upper_radius_matters_within_one_epoch_and_not_with_one_update():
    assert epoch(clip_high=0.28).ratios[-1, 0] > epoch(clip_high=0.2).ratios[-1, 0] + 0.05
    wide, narrow = (epoch(minibatch=8192, clip_high=radius).ratios for radius in (0.28, 0.2))
    assert torch.equal(wide, narrow)
    assert len(wide) == 2


def test_one_big_mini_batch_is_a_step_of_the_ascent_up_to_sampling():
    sampled = epoch(minibatch=8192).ratios[-1]
    exact_step = clipped_ascent.ascend([0.1, 0.3, 0.6], [0.9, -0.1, -0.1], steps=1, lr=0.5)[-1]
    # Four standard errors: each logit moves by 0.5 times a mean of 8192 terms of size at most 0.9.
    assert (sampled - exact_step).abs().max() < 4 * 0.5 * 0.9 / math.sqrt(8192)


def test_an_epoch_samples_from_its_generator_alone():
    assert torch.equal(epoch().ratios, epoch().ratios)
    assert not torch.equal(epoch().ratios, epoch(generator=torch.Generator().manual_seed(1)).ratios)


def test_runs_work_where_gradients_are_switched_off():
    with torch.no_grad():
        assert clipped_ascent.ascend(OLD, SIGNAL, steps=1, lr=0.3)[-1].sum() > 0
        assert len(epoch().clipped) == 16


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: clipped_ascent.ascend([0.5, 0.6], [1.0, 0.0], steps=1, lr=0.1), "policy_old must sum to 1"),
        (lambda: clipped_ascent.ascend([1.0, 0.0], [1.0, 0.0], steps=1, lr=0.1), "policy_old must give every action"),
        (
            lambda: clipped_ascent.ascend([0.5, 0.5], [1.0], steps=1, lr=0.1),
            "policy_old and advantages must have the same",
        ),
        (lambda: clipped_ascent.ascend([0.5, 0.5], [1.0, math.nan], steps=1, lr=0.1), "advantages must be finite"),
        (lambda: clipped_ascent.ascend(OLD, SIGNAL, steps=0, lr=0.1), "steps must be a whole number of at least 1"),
        (lambda: clipped_ascent.ascend(OLD, SIGNAL, steps=1, lr=0.0), "lr must be greater than 0"),
        (lambda: clipped_ascent.ascend(OLD, SIGNAL, steps=1, lr=0.1, clip_low=1.2), "clip_low must lie strictly"),
        (lambda: clipped_ascent.expected_surrogate([math.inf, 0, 0], OLD, SIGNAL), "logits must be finite"),
        (lambda: clipped_ascent.search_runs(parts=2), "parts must be a whole number of at least 3"),
        (lambda: clipped_ascent.search_runs(actions=1), "actions must be a whole number of at least 2"),
        (lambda: epoch(rollouts=1000), "rollouts must be a multiple of minibatch = 512; got 1000"),
        (lambda: epoch(minibatch=0), "minibatch must be a whole number of at least 1"),
        (lambda: epoch(lr=-1.0), "lr must be greater than 0"),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
