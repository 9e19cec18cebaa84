"""labsrc.binary_groups against the list of all 2^G groups in fractions, and closed forms."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL

from labsrc import advantages, exact
from labsrc.binary_groups import mixed_groups, wasted_share


def all_groups(p, size):
    for group in itertools.product((0, 1), repeat=size):
        yield group, math.prod(p if reward else 1 - p for reward in group)


@pytest.mark.parametrize(("size", "share"), [(4, "0.656"), (8, "0.430"), (16, "0.185")])
def test_share_of_wasted_groups_at_ten_percent_is_the_known_one(size, share):
    assert f"{wasted_share(0.1, group_size=size).item():.3f}" == share


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(4, 5)])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_averages_are_those_of_every_group_listed(p, size):
    share = mean_reward = gradient = Fraction(0)
    right, wrong = [Fraction(0), Fraction(0)], [Fraction(0), Fraction(0)]  # mass, mass × advantage
    for group, weight in all_groups(p, size):
        if len(set(group)) == 1:
            continue
        mean = Fraction(sum(group), size)
        share += weight
        mean_reward += weight * mean
        # One logit: ∇log π is 1 − p for a right member and −p for a wrong one; ∇p = p(1 − p).
        gradient += weight * sum((r - mean) * (r - p) for r in group) / size
        first = group[0]
        for kind, wanted in ((right, 1), (wrong, 0)):
            kind[0] += weight * (first == wanted)
            kind[1] += weight * (first == wanted) * (first - mean)
    found = mixed_groups(float(p), group_size=size)
    assert found.share == pytest.approx(float(share), rel=RTOL)
    assert found.share == pytest.approx(1 - wasted_share(float(p), group_size=size).item(), rel=RTOL)
    assert found.mean_reward == pytest.approx(float(mean_reward / share), rel=RTOL)
    assert found.right == pytest.approx(float(right[1] / right[0]), rel=RTOL)
    assert found.wrong == pytest.approx(float(wrong[1] / wrong[0]), rel=RTOL)
    assert found.gradient_factor == pytest.approx(float(gradient / share / (p * (1 - p))), rel=RTOL)


@given(p=st.floats(0.01, 0.99), size=st.integers(2, 40))
def test_closed_forms(p, size):
    """A wasted group adds nothing to E[A·…], so every conditional mean is the unconditional one over a probability."""
    found, mixed = mixed_groups(p, group_size=size), 1 - p**size - (1 - p) ** size
    assert found.mean_reward == pytest.approx((p - p**size) / mixed, rel=1e-9)
    assert found.gradient_factor == pytest.approx((1 - 1 / size) / mixed, rel=1e-9)
    assert found.right == pytest.approx((1 - p) * (1 - 1 / size) / (1 - p ** (size - 1)), rel=1e-9)
    assert found.wrong == pytest.approx(-p * (1 - 1 / size) / (1 - (1 - p) ** (size - 1)), rel=1e-9)


def test_a_hard_prompt_has_its_right_answers_undervalued_and_an_easy_one_overvalued():
    hard, easy = mixed_groups(0.1, group_size=8), mixed_groups(0.9, group_size=8)
    assert hard.right < 1 - 0.1
    assert easy.right > 1 - 0.9


def test_without_the_condition_the_factor_is_1_minus_1_over_g():
    gradient = exact.group_gradient([math.log(0.9), math.log(0.1)], [0, 1], advantages.centered, group_size=8)
    found = mixed_groups(0.1, group_size=8)
    assert gradient[1].item() / 0.09 == pytest.approx(1 - 1 / 8, rel=RTOL)
    assert found.gradient_factor * found.share == pytest.approx(1 - 1 / 8, rel=RTOL)


def test_wasted_share_keeps_the_shape_and_the_dtype():
    share = wasted_share(torch.tensor([[0.0, 1.0], [0.5, 0.25]]), group_size=2)
    assert share.dtype == torch.float32
    assert share.tolist() == [[1.0, 1.0], [0.5, 0.625]]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: wasted_share([0.5, 1.5], group_size=2), r"p must be probabilities in \[0, 1\].*0.5 to 1.5"),
        (lambda: wasted_share(-0.1, group_size=2), r"p must be probabilities in \[0, 1\]"),
        (lambda: wasted_share(0.5, group_size=1), "group_size must be a whole number of at least 2; got 1"),
        (lambda: mixed_groups(0.0, group_size=2), "p must lie strictly between 0 and 1; got 0.0"),
        (lambda: mixed_groups(0.5, group_size=1), "group_size must be a whole number of at least 2; got 1"),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
