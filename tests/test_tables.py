"""Text tables: what is aligned, what is rounded, and what is refused."""

import pytest
import torch

from labsrc.tables import numbers, text_table


def test_what_rounds_to_zero_has_no_minus_sign():
    assert numbers([-1e-9, 0.0, -0.0], "+.3f") == "+0.000 +0.000 +0.000"
    assert numbers([-1e-9], ".1f") == "0.0"
    assert numbers(torch.tensor([0.123456, -2.0], dtype=torch.float64)) == "+0.12346 -2.00000"


def test_columns_are_aligned_under_their_headers_and_no_line_ends_in_a_blank():
    table = text_table({"name": ["k1", "a longer one"], "A": [1, -2.25], "two": [(1, 2), [30, 4]]}, "s +.2f .0f")
    assert table.splitlines() == [
        "name              A   two",
        "k1            +1.00   1 2",
        "a longer one  -2.25  30 4",
    ]
    words_last = text_table({"x": [1.0], "a long header": ["b"]}, ".0f s")
    assert words_last.splitlines() == ["x  a long header", "1  b"]


def test_tensors_are_numbers_and_rows_of_a_matrix_are_set_side_by_side():
    matrix = torch.tensor([[0.5, -0.5], [0.0, 1.0]], dtype=torch.float64, requires_grad=True).detach()
    table = text_table({"n": torch.tensor([1, 2]), "gradient": matrix}, ".0f +.1f")
    assert table.splitlines() == ["n   gradient", "1  +0.5 -0.5", "2  +0.0 +1.0"]


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"formats must hold one a column, 2; got '\.1f'"):
        text_table({"a": [1], "b": [2]}, ".1f")
    with pytest.raises(ValueError, match=r"columns must be of one length; got {'a': 1, 'b': 2}"):
        text_table({"a": [1], "b": [2, 3]}, ".1f .1f")
