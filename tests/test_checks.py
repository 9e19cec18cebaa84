"""What arguments become, and how they are refused: each message names the argument, what it got, what it wants."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labsrc import checks

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def refused(*words: str):
    """The ValueError that holds these words, in this order."""
    return pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words))


# ---------------------------------------------------------------- float_tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_float_tensor_is_returned_as_it_is(dtype):
    value = torch.ones(3, dtype=dtype)
    assert checks.float_tensor("x", value) is value


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1.0, 2.0),
        range(1, 3),
        np.array([1, 2]),
        np.array([1, 2], dtype=np.float32),
        np.array([2.0, 1.0])[::-1],
        torch.tensor([1, 2]),
        [np.float32(1), 2],
    ],
    ids=repr,
)
def test_everything_that_is_not_a_float_tensor_becomes_float64(value):
    tensor = checks.float_tensor("x", value)
    assert tensor.dtype == torch.float64
    assert tensor.tolist() == [1.0, 2.0]


def test_truth_values_become_zeros_and_ones():
    for value in ([True, False], np.array([True, False]), torch.tensor([True, False])):
        assert checks.float_tensor("x", value).tolist() == [1.0, 0.0]
        assert checks.float_tensor("x", value).dtype == torch.float64


def test_a_numpy_float32_keeps_the_value_it_holds():
    assert checks.float_tensor("x", np.float32(0.1)).item() == float(np.float32(0.1)) != 0.1


def test_a_numpy_array_is_copied_and_not_shared():
    array = np.array([1.0, 2.0])
    tensor = checks.float_tensor("x", array)
    array[0] = 9
    assert tensor.tolist() == [1.0, 2.0]


def test_gradients_flow_through_lists_of_tensors_at_any_depth():
    x, y = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (2.0, 3.0))
    for value, factors in (
        ([x, y], [1, 10]),
        ((x, 5.0, y), [1, 100, 10]),
        ([[x, 7.0], [8.0, y]], [[1, 100], [100, 10]]),
    ):
        tensor = checks.float_tensor("x", value)
        gradient = torch.autograd.grad((tensor * torch.tensor(factors, dtype=torch.float64)).sum(), (x, y))
        assert [entry.item() for entry in gradient] == [1.0, 10.0]


def test_a_list_of_float32_tensors_stays_float32():
    assert checks.float_tensor("x", [torch.ones(2), torch.zeros(2)]).dtype == torch.float32


@pytest.mark.parametrize(
    "value",
    [
        "3",
        b"3",
        ["1", "2"],
        [1.0, "2"],
        None,
        [1.0, None],
        [[1.0], [1.0, 2.0]],
        {1: 2.0},
        {1.0, 2.0},
        [1 + 2j],
        np.array([1 + 2j]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        [10**400],
        [Fraction(1, 2)],
        object(),
    ],
    # Cut before an address: workers that run in parallel must collect the same names.
    ids=lambda value: repr(value).split(" at 0x")[0][:30],
)
def test_what_is_not_an_array_of_real_numbers_is_refused(value):
    with refused("rewards must be real numbers in a rectangular array; got ", repr(value)):
        checks.float_tensor("rewards", value)


def test_a_complex_tensor_is_refused():
    with refused("logp must be real numbers", "complex64"):
        checks.float_tensor("logp", torch.ones(2, dtype=torch.complex64))


def test_a_ragged_list_of_tensors_is_refused():
    with refused("logp must be rectangular", "(2,), (3,)"):
        checks.float_tensor("logp", [torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize("value", [[], [[], []], np.zeros((0, 3)), torch.zeros(2, 0), [torch.zeros(0)]], ids=repr)
def test_empty_input_is_refused(value):
    with refused("logp must not be empty; got shape (", "0"):
        checks.float_tensor("logp", value)


# ---------------------------------------------------------------- finite, exponent


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_entry_is_refused_with_its_index(bad):
    with refused("rewards must be finite", f"got {bad} at index (1, 0)"):
        checks.finite("rewards", [[0.0, 1.0], [bad, bad]])


def test_a_non_finite_single_number_is_refused():
    with refused("rewards must be finite", "nan at index ()"):
        checks.finite("rewards", math.nan)


def test_finite_looks_only_where_it_is_told_to():
    where = torch.tensor([True, False])
    assert checks.finite("x", [1.0, math.nan], where=where)[0] == 1.0
    with refused("x must be finite", "index (0,)"):
        checks.finite("x", [math.nan, math.nan], where=where)


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_numbers_whose_sum_overflows_are_finite(dtype):
    largest = torch.finfo(dtype).max
    for value in ([largest, largest], [-largest, -largest], [largest] * 3 + [-largest]):
        tensor = torch.tensor(value, dtype=dtype)
        assert checks.finite("x", tensor) is tensor


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_opposite_infinities_and_large_numbers_do_not_hide_each_other(bad):
    for row in ([bad, -bad], [bad, -1.7e308, -1.7e308], [1.7e308, 1.7e308, bad]):
        with refused("x must be finite"):
            checks.finite("x", row)
        with refused("x must be finite"):
            checks.exponent("x", [min(entry, 0.0) if math.isfinite(entry) else entry for entry in row])


def largest_exponent(dtype: torch.dtype) -> torch.Tensor:
    """The last number of this dtype whose exponential is finite, found by walking from one to the next."""
    here = torch.tensor(math.log(torch.finfo(dtype).max), dtype=dtype)
    while here.exp().isinf():
        here = torch.nextafter(here, torch.zeros((), dtype=dtype))
    while torch.nextafter(here, torch.full((), torch.inf, dtype=dtype)).exp().isfinite():
        here = torch.nextafter(here, torch.full((), torch.inf, dtype=dtype))
    return here


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_exponent_passes_and_the_next_number_is_refused(dtype):
    largest = largest_exponent(dtype)
    next_one = torch.nextafter(largest, torch.full((), torch.inf, dtype=dtype))
    assert checks.exponent("x", largest.reshape(1)).exp().isfinite().all()
    with refused("exp(log_ratio) must fit", str(dtype), f"got log_ratio = {next_one.item():g} at index (1,)"):
        checks.exponent("log_ratio", torch.stack([largest, next_one]))


def test_exponent_looks_only_where_it_is_told_to():
    where = torch.tensor([True, False])
    for outside in (1e308, math.nan):
        assert checks.exponent("x", [1.0, outside], where=where)[0] == 1.0
    with refused("exp(x) must fit"):
        checks.exponent("x", [1e308, 1.0], where=where)
    with refused("x must be finite"):
        checks.exponent("x", [math.nan, 1.0], where=where)


def test_a_very_negative_exponent_is_no_overflow():
    assert checks.exponent("x", [-1e308]).exp().item() == 0.0


# ---------------------------------------------------------------- distribution


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_softmax_is_a_distribution_in_every_dtype(dtype):
    p = torch.softmax(torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(2, 6), -1).to(dtype)
    assert checks.distribution("p", p) is p


def test_a_distribution_written_with_six_decimals_passes():
    checks.distribution("p", [0.020806, 0.230604, 0.748591])


def test_a_numpy_float32_softmax_passes_although_it_is_float64_by_then():
    weights = np.exp(np.random.default_rng(0).normal(size=(20, 500)), dtype=np.float32)
    p = checks.distribution("p", weights / weights.sum(-1, keepdims=True))
    assert p.dtype == torch.float64
    assert (p.sum(-1) - 1).abs().max() > 1e-8


@pytest.mark.parametrize(
    "dtype, rounding, mistake",
    [
        (torch.float64, 1.5e-6, 3e-6),
        (torch.float32, 7.5e-6, 1.5e-5),
        (torch.float16, 2 / 1024, 4 / 1024),
        (torch.bfloat16, 2 / 128, 3 / 128),
    ],
)
def test_a_sum_off_by_more_than_rounding_is_refused(dtype, rounding, mistake):
    for sign in (1, -1):
        checks.distribution("p", torch.tensor([0.5, 0.5 + sign * rounding], dtype=dtype))
        with refused("p must sum to 1 on the last axis; got a row that sums to "):
            checks.distribution("p", torch.tensor([0.5, 0.5 + sign * mistake], dtype=dtype))


def test_a_bfloat16_row_that_forgets_an_action_is_refused():
    with refused("p must sum to 1", "0.898"):
        checks.distribution("p", torch.tensor([0.5, 0.4], dtype=torch.bfloat16))


def test_an_action_may_have_probability_zero():
    assert checks.distribution("p", [0.0, 1.0]).tolist() == [0.0, 1.0]


def test_the_worst_row_is_the_one_reported():
    with refused("q must sum to 1", "1.5"):
        checks.distribution("q", [[0.5, 0.5], [0.5, 0.4], [1.0, 0.5]])
    with refused("q must sum to 1", "0.7"):
        checks.distribution("q", [[0.5, 0.5], [0.5, 0.2], [0.6, 0.5]])


def test_other_things_that_are_no_distribution_are_refused():
    with refused("p must be non-negative; got -0.5"):
        checks.distribution("p", [1.5, -0.5])
    with refused("p must be finite; got nan"):
        checks.distribution("p", [math.nan, 1.0])
    with refused("p must list a probability for each action; got the single number 1.0"):
        checks.distribution("p", 1.0)


def test_the_checks_leave_the_graph_alone():
    p = torch.tensor([0.25, 0.75], dtype=torch.float64, requires_grad=True)
    for check in (checks.float_tensor, checks.finite, checks.exponent, checks.distribution):
        assert check("p", p) is p


# ---------------------------------------------------------------- shapes


def test_shapes_that_differ_are_refused_with_all_their_names():
    checks.same_shape(a=torch.ones(2, 3), b=torch.zeros(2, 3))
    with refused("a and b must have the same shape; got a (2,), b (1, 2)"):
        checks.same_shape(a=torch.ones(2), b=torch.ones(1, 2))


def test_shapes_that_do_not_broadcast_are_refused():
    checks.broadcastable(a=torch.ones(2, 3), b=torch.ones(3))
    with refused("a and b must have shapes that broadcast; got a (2, 3), b (2,)"):
        checks.broadcastable(a=torch.ones(2, 3), b=torch.ones(2))


# ---------------------------------------------------------------- single numbers


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), Fraction(2)], ids=repr)
def test_any_real_number_becomes_a_python_float(value):
    for check in (checks.number, checks.positive, checks.non_negative):
        assert check("beta", value) == 2.0
        assert type(check("beta", value)) is float


@pytest.mark.parametrize(
    "value",
    [True, np.True_, None, "1", [1.0], 1j, math.nan, math.inf, -math.inf, 10**400, torch.tensor(1.0)],
    ids=lambda value: repr(value)[:20],
)
@pytest.mark.parametrize("check", [checks.number, checks.positive, checks.non_negative, checks.open_unit_interval])
def test_what_is_not_one_finite_number_is_refused(check, value):
    with refused("beta must be a finite number; got ", repr(value)):
        check("beta", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_ranges_of_numbers_are_what_their_names_say(value):
    for check, allowed in (
        (checks.number, True),
        (checks.positive, value > 0),
        (checks.non_negative, value >= 0),
        (checks.open_unit_interval, 0 < value < 1),
    ):
        if allowed:
            assert check("beta", value) == value
        else:
            with refused("beta must ", f"got {value!r}"):
                check("beta", value)


def test_numbers_out_of_range_are_told_the_range():
    with refused("beta must be greater than 0; got 0"):
        checks.positive("beta", 0)
    with refused("beta must be at least 0; got -0.5"):
        checks.non_negative("beta", -0.5)
    assert checks.non_negative("beta", 0) == 0.0
    for value in (0, 1, 1.2, -0.1):
        with refused("clip_low must lie strictly between 0 and 1; got ", repr(value)):
            checks.open_unit_interval("clip_low", value)
    assert checks.open_unit_interval("clip_low", 0.2) == 0.2


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)], ids=repr)
def test_whole_numbers_become_python_ints(value):
    assert checks.integer_at_least("n", value, 3) == 3
    assert type(checks.integer_at_least("n", value, 3)) is int


@pytest.mark.parametrize("value", [2, 3.0, True, np.True_, "3", None, torch.tensor(3)], ids=repr)
def test_what_is_not_a_whole_number_of_that_size_is_refused(value):
    with refused("n must be a whole number of at least 3; got ", repr(value)):
        checks.integer_at_least("n", value, 3)


def test_true_is_no_whole_number_however_small_the_least():
    with refused("n must be a whole number of at least 0; got True"):
        checks.integer_at_least("n", True, 0)


def test_one_of_takes_what_is_listed_and_nothing_that_only_looks_like_it():
    assert checks.one_of("ddof", 1, (0, 1)) == 1
    assert checks.one_of("ddof", np.int64(0), (0, 1)) == 0
    for value in (2, True, np.True_, [1], None, np.array([0, 1]), torch.tensor(1)):
        with refused("ddof must be one of [0, 1]; got ", repr(value)):
            checks.one_of("ddof", value, (0, 1))
