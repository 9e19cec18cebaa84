"""Masks: True counts, padding leaks nowhere, and a sequence without a valid token is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL

from labsrc import masking

VALUES = torch.zeros(2, 3, dtype=torch.float64)
POISON = (math.nan, math.inf, -math.inf, 1e308, -1e308)


@pytest.mark.parametrize(
    "mask",
    [
        [[True, True, False], [True, False, False]],
        [[1, 1, 0], [1, 0, 0]],
        [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
        np.array([[1, 1, 0], [1, 0, 0]], dtype=np.int8),
        torch.tensor([[1, 1, 0], [1, 0, 0]]),
        torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        [torch.tensor([True, True, False]), torch.tensor([True, False, False])],
    ],
    ids=str,
)
def test_every_spelling_of_a_mask_becomes_the_same_booleans(mask):
    made = masking.as_mask(mask, like=VALUES)
    assert made.dtype == torch.bool
    assert made.tolist() == [[True, True, False], [True, False, False]]


def test_a_boolean_mask_is_returned_as_it_is():
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert masking.as_mask(mask, like=VALUES) is mask


def test_a_mask_of_another_shape_is_refused_even_where_it_would_broadcast():
    for mask in ([[1, 1]], [[1, 1, 1]], [1, 1, 1], 1):
        with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\) of the values; got \("):
            masking.as_mask(mask, like=VALUES)


@pytest.mark.parametrize("bad", [2, -1, 0.5, math.nan])
def test_a_mask_with_other_values_than_zero_and_one_is_refused(bad):
    with pytest.raises(ValueError, match=r"mask must hold only True/False or 1/0; got values in \[.*" + str(bad)):
        masking.as_mask([[1, 1, 1], [1, bad, 1]], like=VALUES)


def test_a_sequence_without_a_valid_token_is_refused():
    with pytest.raises(ValueError, match=r"mask must keep at least one token in every sequence; sequence \(1,\) has"):
        masking.as_mask([[0, 0, 1], [0, 0, 0]], like=VALUES)


def test_text_is_no_mask():
    with pytest.raises(ValueError, match=r"mask must be real numbers .* got 'mask'"):
        masking.as_mask("mask", like=VALUES)


@pytest.mark.parametrize("poison", POISON)
def test_padding_becomes_zero_and_gets_the_gradient_zero(poison):
    values = torch.tensor([[1.5, poison], [2.5, -3.5]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False], [True, True]])
    kept = masking.keep_valid("values", values, mask)
    assert kept.tolist() == [[1.5, 0.0], [2.5, -3.5]]
    # The exponential comes after the mask, so not even its derivative can meet the padding.
    (gradient,) = torch.autograd.grad(kept.exp().sum(), values)
    torch.testing.assert_close(gradient, torch.tensor([[1.5, -math.inf], [2.5, -3.5]], dtype=torch.float64).exp())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    values, mask = torch.ones(1, 2, dtype=dtype), torch.tensor([[True, False]])
    assert masking.keep_valid("values", values, mask).dtype == dtype
    assert masking.sum_over_tokens(values, mask).dtype == dtype


def test_a_non_finite_value_at_a_valid_position_is_refused():
    with pytest.raises(ValueError, match=r"logp must be finite; got nan at index \(0, 1\)"):
        masking.keep_valid("logp", [[1.0, math.nan]], torch.tensor([[True, True]]))
    with pytest.raises(ValueError, match="values must be finite; got inf"):
        masking.sum_over_tokens([[math.inf, 1.0]], [[1, 0]])


def test_values_and_mask_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"logp and mask must have the same shape; got logp \(2,\), mask \(1, 2\)"):
        masking.keep_valid("logp", [1.0, 2.0], torch.tensor([[True, True]]))
    with pytest.raises(ValueError, match="mask must have the shape"):
        masking.sum_over_tokens([[1.0, 2.0]], [1, 1])


def test_the_log_probability_of_a_sequence_is_the_log_of_the_product_over_its_valid_tokens():
    probabilities = [[0.5, 0.25, 0.9], [0.125, 0.7, 0.7]]
    sums = masking.sum_over_tokens(np.log(probabilities), [[1, 1, 0], [1, 0, 0]])
    torch.testing.assert_close(sums.exp(), torch.tensor([0.125, 0.125], dtype=torch.float64), rtol=RTOL, atol=0)


def test_the_gradient_of_a_sequence_sum_is_one_at_each_valid_token():
    values = torch.rand(2, 3, dtype=torch.float64, generator=torch.manual_seed(0), requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, True]])
    assert torch.autograd.gradcheck(lambda v: masking.sum_over_tokens(v, mask), values)
    (gradient,) = torch.autograd.grad(masking.sum_over_tokens(values, mask).sum(), values)
    assert gradient.tolist() == mask.double().tolist()


# ---------------------------------------------------------------- completion_mask


def test_the_mask_runs_up_to_and_including_the_first_end_token():
    tokens = [[5, 9, 0, 0], [9, 9, 3, 9], [1, 2, 3, 4], [1, 2, 3, 9]]
    assert masking.completion_mask(tokens, eos_token=9).int().tolist() == [
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
    ]


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_every_row_counts_as_many_tokens_as_a_plain_search_finds(tokens):
    lengths = [row.index(2) + 1 if 2 in row else len(row) for row in tokens]
    for form in (tokens, np.array(tokens), torch.tensor(tokens)):
        mask = masking.completion_mask(form, eos_token=2)
        assert mask.dtype == torch.bool
        assert mask.tolist() == [[t < length for t in range(5)] for length in lengths]
        assert masking.as_mask(mask, like=mask) is mask


@pytest.mark.parametrize(
    "tokens",
    [[1, 2], [[1.0, 2.0]], [[1], [1, 2]], "ab", None, [[]], [[[1]]], [[1j]], torch.zeros(2, 0, dtype=torch.long)],
    ids=repr,
)
def test_what_is_not_a_table_of_token_ids_is_refused(tokens):
    with pytest.raises(ValueError, match=r"tokens must be a \(B, T\) array of token ids; got "):
        masking.completion_mask(tokens, eos_token=2)


@pytest.mark.parametrize("eos_token", [None, 1.5, "2", -1, True], ids=repr)
def test_an_end_token_that_is_no_token_id_is_refused(eos_token):
    with pytest.raises(ValueError, match="eos_token must be a whole number of at least 0; got "):
        masking.completion_mask([[1, 2]], eos_token=eos_token)
