"""Tables of pairs: Bradley–Terry shares by hand, samples, and which tables settle a policy."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import preference_pairs

REWARDS = [-0.5, 0.7, 1.1]


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(rows) -> Tensor:
    return tensor(rows, dtype=torch.float64)


# ---------------------------------------------------------------- the population


def test_a_reward_log_three_higher_is_chosen_three_times_of_four():
    close(preference_pairs.bradley_terry_pairs([math.log(3), 0.0]), [[0.0, 0.75], [0.25, 0.0]])


def test_shares_of_the_pairs_are_those_asked_for_in_either_order():
    table = preference_pairs.bradley_terry_pairs(REWARDS, asked={(0, 1): 3.0, (2, 1): 1.0})
    # Gaps 1.2 and 0.4.
    close(table[0, 1], 0.75 / (1 + math.exp(1.2)))
    close(table[1, 0], 0.75 / (1 + math.exp(-1.2)))
    close(table[2, 1], 0.25 / (1 + math.exp(-0.4)))
    close(table[0, 2] + table[2, 0], 0.0)
    close(preference_pairs.bradley_terry_pairs(REWARDS, asked={(1, 0): 6.0, (1, 2): 2.0}), table)


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=5))
def test_the_odds_of_two_labels_are_the_exponential_of_the_gap(rewards):
    table = preference_pairs.bradley_terry_pairs(rewards)
    close(table.sum(), 1.0)
    for a, b in itertools.combinations(range(len(rewards)), 2):
        close(table[a, b].log() - table[b, a].log(), rewards[a] - rewards[b], atol=1e-9)
        close(table[a, b] + table[b, a], 2 / (len(rewards) * (len(rewards) - 1)))


def test_counts_are_counted():
    labels = [(0, 1), (2, 1), (0, 1), (1, 0)]
    close(preference_pairs.count_pairs(labels, actions=3), [[0, 2, 0], [1, 0, 0], [0, 1, 0]])


# ---------------------------------------------------------------- samples


def test_a_sample_has_as_many_labels_as_asked_for_and_only_such_as_there_are():
    population = preference_pairs.bradley_terry_pairs(REWARDS, asked={(0, 1): 1.0})
    drawn = preference_pairs.sample_pairs(population, 7, generator=torch.Generator().manual_seed(0), sets=50)
    assert drawn.shape == (50, 3, 3)
    close(drawn.sum((1, 2)), [7.0] * 50)
    assert drawn[:, population == 0].sum() == 0


def test_shares_of_a_large_sample_are_within_four_standard_errors_of_the_population():
    population = preference_pairs.bradley_terry_pairs(REWARDS)
    drawn = preference_pairs.sample_pairs(population, 40_000, generator=torch.Generator().manual_seed(1))[0]
    error = (population * (1 - population) / 40_000).sqrt()
    assert ((drawn / 40_000 - population).abs() <= 4 * error).all()


def test_sets_of_one_draw_are_independent_and_repeat_with_the_seed():
    population = preference_pairs.bradley_terry_pairs(REWARDS)
    one, again = (
        preference_pairs.sample_pairs(population, 20, generator=torch.Generator().manual_seed(2), sets=3)
        for _ in range(2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one[0], one[1])


# ---------------------------------------------------------------- what settles a policy


def reaches_all(occurs) -> bool:
    """Depth-first, from every action."""
    for start in range(len(occurs)):
        seen, todo = {start}, [start]
        while todo:
            here = todo.pop()
            new = [there for there in range(len(occurs)) if occurs[here][there] and there not in seen]
            seen.update(new)
            todo += new
        if len(seen) < len(occurs):
            return False
    return True


def supports(actions: int):
    cells = [(a, b) for a in range(actions) for b in range(actions) if a != b]
    for occurs in itertools.product((0, 1), repeat=len(cells)):
        if any(occurs):
            table = [[0] * actions for _ in range(actions)]
            for (a, b), there in zip(cells, occurs, strict=True):
                table[a][b] = there
            yield table


@pytest.mark.parametrize("actions", [2, 3, 4])
def test_a_table_settles_exactly_when_a_search_from_every_action_finds_every_other(actions):
    tables = list(supports(actions))
    found = preference_pairs.settles(tables)
    assert found.tolist() == [reaches_all(table) for table in tables]
    assert found.any() and not found.all()


def test_one_dissenting_label_settles_a_pair_and_a_circle_settles_three():
    assert not preference_pairs.settles([[0, 50], [0, 0]])
    assert preference_pairs.settles([[0, 50], [1, 0]])
    assert preference_pairs.settles([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    # Both pairs are contested, but nothing links them.
    assert not preference_pairs.settles([[0, 5, 0, 0], [5, 0, 0, 0], [0, 0, 0, 5], [0, 0, 5, 0]])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_chance_of_settling_is_that_of_all_lists_of_labels_that_do(count):
    population = preference_pairs.bradley_terry_pairs(REWARDS)
    kinds = [(a, b) for a in range(3) for b in range(3) if a != b]
    chance = 0.0
    for labels in itertools.product(kinds, repeat=count):
        occurs = [[(a, b) in labels for b in range(3)] for a in range(3)]
        if reaches_all(occurs):
            chance += math.prod(population[label].item() for label in labels)
    assert preference_pairs.chance_of_settling(population, count) == pytest.approx(chance, rel=RTOL, abs=1e-14)


@given(st.floats(0.05, 0.95), st.integers(1, 60))
def test_one_pair_is_settled_unless_all_labels_agree(p, count):
    population = [[0.0, p], [1 - p, 0.0]]
    expected = 1 - p**count - (1 - p) ** count
    assert preference_pairs.chance_of_settling(population, count) == pytest.approx(expected, abs=1e-12)


def test_samples_settle_as_often_as_they_should():
    population = preference_pairs.bradley_terry_pairs(REWARDS)
    drawn = preference_pairs.sample_pairs(population, 10, generator=torch.Generator().manual_seed(3), sets=4000)
    share = preference_pairs.settles(drawn).double().mean().item()
    chance = preference_pairs.chance_of_settling(population, 10)
    assert abs(share - chance) <= 4 * math.sqrt(chance * (1 - chance) / 4000)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "table, message",
    [
        ([0.0, 1.0], r"pairs must be \(K, K\), chosen by rejected; got shape \(2,\)"),
        ([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], r"pairs must be \(K, K\).*got shape \(2, 3\)"),
        ([[0.0, -1.0], [1.0, 0.0]], "pairs must be non-negative; got -1"),
        ([[0.5, 1.0], [1.0, 0.0]], "pairs must be 0 on the diagonal"),
        ([[0.0, 0.0], [0.0, 0.0]], "pairs must hold at least one pair; got a table of zeros"),
        ([[[0, 1], [0, 0]], [[0, 0], [0, 0]]], "pairs must hold at least one pair"),
        ([[0.0, math.nan], [1.0, 0.0]], "pairs must be finite; got nan"),
    ],
)
def test_what_is_no_table_of_pairs_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        preference_pairs.settles(table)


@pytest.mark.parametrize(
    "rewards, asked, message",
    [
        ([1.0], None, r"rewards must be \(K,\) with K of at least 2; got shape \(1,\)"),
        ([[1.0, 2.0]], None, r"rewards must be \(K,\)"),
        (REWARDS, {}, "asked must name at least one pair; got {}"),
        (REWARDS, {(0, 3): 1.0}, r"asked must hold pairs of action indices from 0 to 2; got \(0, 3\)"),
        (REWARDS, {(0, -1): 1.0}, "asked must hold pairs of action indices from 0 to 2"),
        (REWARDS, {(0, 1, 2): 1.0}, "asked must hold pairs of action indices"),
        (REWARDS, {(1, 1): 1.0}, r"asked must hold pairs of different actions; got \(1, 1\)"),
        (REWARDS, {(0, 1): 1.0, (1, 0): 1.0}, r"asked must name each pair once; got \{1, 0\} in both orders"),
        (REWARDS, {(0, 1): 0.0}, r"asked\[\(0, 1\)\] must be greater than 0; got 0.0"),
    ],
)
def test_pairs_that_cannot_be_asked_are_refused(rewards, asked, message):
    with pytest.raises(ValueError, match=message):
        preference_pairs.bradley_terry_pairs(rewards, asked=asked)


def test_counts_and_samples_of_nothing_are_refused():
    population = preference_pairs.bradley_terry_pairs(REWARDS)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match="labels must hold at least one pair"):
        preference_pairs.count_pairs([], actions=2)
    with pytest.raises(ValueError, match=r"labels must hold pairs of action indices from 0 to 1; got \(0, 2\)"):
        preference_pairs.count_pairs([(0, 2)], actions=2)
    with pytest.raises(ValueError, match="actions must be a whole number of at least 2; got 1"):
        preference_pairs.count_pairs([(0, 1)], actions=1)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1; got 0"):
        preference_pairs.sample_pairs(population, 0, generator=generator)
    with pytest.raises(ValueError, match="sets must be a whole number of at least 1; got 0"):
        preference_pairs.sample_pairs(population, 1, generator=generator, sets=0)
    with pytest.raises(ValueError, match=r"population must be one table \(K, K\); got shape \(1, 3, 3\)"):
        preference_pairs.sample_pairs(population[None], 1, generator=generator)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1; got 0"):
        preference_pairs.chance_of_settling(population, 0)
    with pytest.raises(ValueError, match="population must have at most 16 kinds of labels; got 20"):
        preference_pairs.chance_of_settling(preference_pairs.bradley_terry_pairs([0.0] * 5), 3)
