"""Four ways from tokens to one number: by hand, by gradient, where they agree, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import aggregation

VALUES, MASK = [[1.0, 2.0, 3.0], [4.0, 100.0, 200.0]], [[1, 1, 1], [1, 0, 0]]
ALL = {
    "sequence means": aggregation.mean_of_sequence_means,
    "sequence sums": aggregation.mean_of_sequence_sums,
    "tokens": aggregation.mean_over_tokens,
    "fixed length": lambda values, mask: aggregation.sum_over_fixed_length(values, mask, max_length=5),
}
# By hand: (2 + 4)/2, (6 + 4)/2, 10/4, 10/(2·5); and what one valid token of either row weighs in each.
BY_HAND = {"sequence means": 3.0, "sequence sums": 5.0, "tokens": 2.5, "fixed length": 1.0}
WEIGHTS = {
    "sequence means": (1 / 6, 1 / 2),
    "sequence sums": (0.5, 0.5),
    "tokens": (0.25, 0.25),
    "fixed length": (0.1, 0.1),
}


def close(actual: Tensor, expected, rtol: float = RTOL) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=1e-14)


def batches(rows: int = 3, tokens: int = 4):
    """Values (B, T) and a mask with at least one True a row."""
    numbers = st.lists(st.floats(-10, 10), min_size=rows * tokens, max_size=rows * tokens)
    lengths = st.lists(st.integers(1, tokens), min_size=rows, max_size=rows)
    return st.tuples(
        numbers.map(lambda v: tensor(v, dtype=torch.float64).reshape(rows, tokens)),
        lengths.map(lambda ls: torch.arange(tokens) < tensor(ls)[:, None]),
    )


@pytest.mark.parametrize("name", ALL)
def test_the_same_batch_gives_four_numbers(name):
    result = ALL[name](VALUES, MASK)
    assert result.shape == ()
    close(result, BY_HAND[name])


@pytest.mark.parametrize("name", ALL)
def test_the_gradient_is_the_weight_of_a_token_and_zero_on_padding(name):
    values = tensor(VALUES, dtype=torch.float64, requires_grad=True)
    long, short = WEIGHTS[name]
    close(torch.autograd.grad(ALL[name](values, MASK), values)[0], [[long, long, long], [short, 0.0, 0.0]])
    assert torch.autograd.gradcheck(lambda v: ALL[name](v, MASK), values)


def test_a_token_of_a_long_answer_weighs_a_tenth_only_where_each_sequence_weighs_the_same():
    values = torch.ones(2, 1000, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(1000) < tensor([[100], [1000]])
    ratios = {}
    for name, function in (
        ALL | {"fixed length": lambda v, m: aggregation.sum_over_fixed_length(v, m, max_length=1000)}
    ).items():
        (gradient,) = torch.autograd.grad(function(values, mask), values)
        ratios[name] = (gradient[0, 0] / gradient[1, 0]).item()
    assert ratios == pytest.approx({"sequence means": 10.0, "sequence sums": 1.0, "tokens": 1.0, "fixed length": 1.0})


@given(batches(), st.integers(1, 4))
def test_at_equal_lengths_all_agree_up_to_a_known_factor(batch, length):
    values, _ = batch
    mask = (torch.arange(4) < length).expand(3, 4)
    mean = values[:, :length].mean()
    close(ALL["sequence means"](values, mask), mean, 1e-9)
    close(ALL["tokens"](values, mask), mean, 1e-9)
    close(ALL["sequence sums"](values, mask), length * mean, 1e-9)
    close(ALL["fixed length"](values, mask), length / 5 * mean, 1e-9)


@given(batches(), st.permutations(range(3)), st.floats(-3, 3))
def test_neither_the_order_of_sequences_nor_that_of_valid_tokens_matters_and_all_are_linear(batch, order, factor):
    values, mask = batch
    for function in ALL.values():
        result = function(values, mask)
        close(function(values[order], mask[order]), result, 1e-9)
        close(function(values.flip(-1), mask.flip(-1)), result, 1e-9)
        close(function(factor * values, mask), factor * result, 1e-9)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_padding_changes_neither_value_nor_gradient_by_a_single_bit(name, poison):
    clean = tensor(VALUES, dtype=torch.float64, requires_grad=True)
    poisoned = torch.where(tensor(MASK).bool(), clean.detach(), poison).requires_grad_()
    results = [ALL[name](values, MASK) for values in (clean, poisoned)]
    assert torch.equal(*results)
    gradients = [torch.autograd.grad(r, v)[0] for r, v in zip(results, (clean, poisoned), strict=True)]
    assert torch.equal(*gradients)


@given(batches(4, 3))
def test_slices_that_know_the_token_count_of_the_batch_add_up_to_it(batch):
    values, mask = batch
    count = int(mask.sum())
    slices = [aggregation.mean_over_tokens(values[i : i + 2], mask[i : i + 2], token_count=count) for i in (0, 2)]
    close(sum(slices), aggregation.mean_over_tokens(values, mask), 1e-9)


def test_slices_that_do_not_know_it_give_another_number():
    whole = aggregation.mean_over_tokens(VALUES, MASK)
    apart = [aggregation.mean_over_tokens(VALUES[i : i + 1], MASK[i : i + 1]) for i in (0, 1)]
    close(sum(apart) / 2, 3.0)
    close(whole, 2.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_the_dtype_is_kept_and_lists_become_float64(name, dtype):
    assert ALL[name](tensor(VALUES, dtype=dtype), MASK).dtype == dtype
    assert ALL[name](VALUES, MASK).dtype == torch.float64
    assert ALL[name](np.array(VALUES, dtype=np.float32), MASK).dtype == torch.float64


@pytest.mark.parametrize("name", ALL)
def test_what_does_not_fit_is_refused(name):
    for values, mask in (([1.0, 2.0], [1, 1]), ([[[1.0]]], [[[1]]]), (1.0, 1)):
        with pytest.raises(ValueError, match=r"values must be \(B, T\), one number per token; got shape \("):
            ALL[name](values, mask)
    with pytest.raises(ValueError, match="values must be real numbers"):
        ALL[name]("text", MASK)
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\)"):
        ALL[name](VALUES, [[1, 1, 1]])
    with pytest.raises(ValueError, match=r"mask must keep at least one token in every sequence; sequence \(0,\) has"):
        ALL[name](VALUES, [[0, 0, 0], [1, 1, 1]])
    with pytest.raises(ValueError, match=r"values must be finite; got nan at index \(0, 1\)"):
        ALL[name]([[1.0, math.nan, 3.0], [4.0, 5.0, 6.0]], MASK)


@pytest.mark.parametrize("bad", [3, 4.0, True, "4"])
def test_a_token_count_below_the_tokens_at_hand_is_refused(bad):
    with pytest.raises(ValueError, match=f"token_count must be a whole number of at least 4; got {bad!r}"):
        aggregation.mean_over_tokens(VALUES, MASK, token_count=bad)
    close(aggregation.mean_over_tokens(VALUES, MASK, token_count=4), 2.5)


@pytest.mark.parametrize("bad", [2, 3.0, None])
def test_a_maximum_below_the_length_at_hand_is_refused(bad):
    with pytest.raises(ValueError, match=f"max_length must be a whole number of at least 3; got {bad!r}"):
        aggregation.sum_over_fixed_length(VALUES, MASK, max_length=bad)
    close(aggregation.sum_over_fixed_length(VALUES, MASK, max_length=3), 10 / 6)
