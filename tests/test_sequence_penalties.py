"""KL penalties on sequences: the sequence gradient by central differences, what token penalties miss, refusals."""

import pytest
import torch
from finite_differences import central_gradient
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from labsrc import exact, kl, sequence_penalties

TOKEN_LEVEL = ("k2 by token", "own k1 in the reward", "token ρ · k3")
EXACT = ("k2 of the sequence", "k1 to go in the reward", "prefix ρ · k3")


def table(seed: int, vocabulary: int = 3, length: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(vocabulary,) * (step + 1) for step in range(length)]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def close(actual: list[Tensor], expected: list[Tensor], atol: float = 1e-12) -> None:
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


def gradients(names, pi, ref, old=None):
    return {
        name: sequence_penalties.penalty_gradient(sequence_penalties.PENALTIES[name], pi, ref, table_old=old)
        for name in names
    }


def test_the_target_is_the_derivative_of_the_sequence_kl():
    pi, ref = table(1), table(2)
    found = sequence_penalties.kl_gradient(pi, ref)
    first = central_gradient(lambda z: exact.sequence_kl([z, pi[1]], ref), pi[0])
    second = central_gradient(lambda z: exact.sequence_kl([pi[0], z], ref), pi[1])
    close(found, [first, second], atol=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([(3, 2), (2, 3), (4, 1)]))
def test_on_policy_three_penalties_have_the_gradient_of_the_sequence_kl(seed, shape):
    pi, ref = table(seed, *shape), table(seed + 1, *shape)
    truth = sequence_penalties.kl_gradient(pi, ref)
    for gradient in gradients(EXACT, pi, ref).values():
        close(gradient, truth)


@given(st.integers(0, 10**6))
def test_off_policy_only_the_prefix_ratio_has_it(seed):
    pi, ref, old = table(seed), table(seed + 1), table(seed + 2)
    truth = sequence_penalties.kl_gradient(pi, ref)
    found = gradients(sequence_penalties.PENALTIES, pi, ref, old)
    close(found.pop("prefix ρ · k3"), truth)
    for gradient in found.values():
        assert max((a - b).abs().max() for a, b in zip(gradient, truth, strict=True)) > 1e-6


@given(st.integers(0, 10**6))
def test_token_penalties_all_miss_what_the_first_token_does_to_the_kl_of_the_second(seed):
    pi, ref = table(seed), table(seed + 1)
    # By hand: ∂/∂z of Σ_a p(a)·KL_a with the KLs of the second token held fixed.
    later = kl.kl_divergence(pi[1].softmax(-1), ref[1].softmax(-1))
    p = pi[0].softmax(-1)
    part = p * (later - p @ later)
    for name in TOKEN_LEVEL:
        missed = sequence_penalties.shortfall(sequence_penalties.PENALTIES[name], pi, ref)
        close(missed, [part, torch.zeros(3, 3, dtype=torch.float64)])


def test_what_is_missed_off_policy_is_the_target_less_the_gradient_on_those_samples():
    pi, ref, old = table(1), table(2), table(3)
    missed = sequence_penalties.shortfall(sequence_penalties.token_k2, pi, ref, table_old=old)
    gradient = sequence_penalties.penalty_gradient(sequence_penalties.token_k2, pi, ref, table_old=old)
    close([m + g for m, g in zip(missed, gradient, strict=True)], sequence_penalties.kl_gradient(pi, ref))


def test_k3_by_token_misses_more_than_that():
    pi, ref = table(5), table(6)
    truth = sequence_penalties.kl_gradient(pi, ref)
    found = gradients(("k3 by token",), pi, ref)["k3 by token"]
    p, q = pi[0].softmax(-1), ref[0].softmax(-1)
    close([found[0]], [p - q])
    assert (found[1] - truth[1]).abs().max() > 0.01


def test_one_token_is_no_sequence_and_the_levels_agree():
    pi, ref = table(3, 4, 1), table(4, 4, 1)
    truth = sequence_penalties.kl_gradient(pi, ref)
    for gradient in gradients((*TOKEN_LEVEL, *EXACT), pi, ref).values():
        close(gradient, truth)


def test_tables_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="table and table_old and table_ref must have the same shape"):
        sequence_penalties.penalty_gradient(sequence_penalties.token_k2, table(1), table(1, 9, 1))
    with pytest.raises(ValueError, match="table_ref must list the same"):
        sequence_penalties.kl_gradient(table(1), table(1, 9, 1))
    with pytest.raises(ValueError, match="table must be finite"):
        sequence_penalties.kl_gradient([tensor([float("nan"), 0.0])], table(1, 2, 1))


def test_gradients_are_found_where_they_are_switched_off():
    pi, ref = table(1), table(2)
    with torch.no_grad():
        close(gradients(("prefix ρ · k3",), pi, ref)["prefix ρ · k3"], sequence_penalties.kl_gradient(pi, ref))
