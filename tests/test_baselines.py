"""labsrc.baselines against rational arithmetic, the estimators of labsrc.exact, and what theory says of minima."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL

from labsrc import baselines, exact

P = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
REWARDS = (Fraction(-1), Fraction(1, 5), Fraction(2))
LOGITS = [math.log(p) for p in P]
NABLA_J = [Fraction(-372, 1000), Fraction(-198, 1000), Fraction(570, 1000)]  # p(a)·(r(a) − 0.86), by hand
LEAST = Fraction(
    577, 1550
)  # b*, by hand: E[r·‖s‖²] = 0.2308 and E[‖s‖²] = 0.62, since ‖onehot − p‖² = 1 − 2p(a) + ‖p‖²

# Four texts of two tokens; the first token decides nearly everything. Uniform, so every value is a plain mean.
UNIFORM = [[0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]]
SCORES = [0.0, 1.0, 4.0, 5.0]


def close(actual, expected, tolerance=RTOL):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(torch.as_tensor(actual).double(), expected, rtol=tolerance, atol=tolerance)


def floats(values):
    return [float(value) for value in values]


def by_hand(baseline_of):
    """Mean and trace of the covariance of (r − b)(onehot − p), in fractions."""
    rows = [[(REWARDS[a] - baseline_of(a)) * ((a == k) - P[k]) for k in range(3)] for a in range(3)]
    mean = [sum(p * row[k] for p, row in zip(P, rows, strict=True)) for k in range(3)]
    spread = sum(p * sum((row[k] - mean[k]) ** 2 for k in range(3)) for p, row in zip(P, rows, strict=True))
    return mean, spread


# ---------------------------------------------------------------- one action


@pytest.mark.parametrize("baseline", [Fraction(0), Fraction(43, 50), LEAST, Fraction(-3), Fraction(2)])
def test_a_constant_baseline_keeps_the_mean_and_sets_the_variance(baseline):
    mean, variance = by_hand(lambda _: baseline)
    assert mean == NABLA_J
    moments = baselines.single_sample_moments(LOGITS, floats(REWARDS), float(baseline))
    close(moments.mean, floats(NABLA_J))
    assert moments.variance == pytest.approx(float(variance), rel=RTOL)
    close(baselines.variance_by_baseline(LOGITS, floats(REWARDS), float(baseline)), float(variance))


def test_a_baseline_that_looks_at_the_action_moves_the_mean():
    each = [Fraction(1), Fraction(-2), Fraction(1, 2)]
    mean, variance = by_hand(lambda action: each[action])
    assert mean != NABLA_J
    moments = baselines.single_sample_moments(LOGITS, floats(REWARDS), floats(each))
    close(moments.mean, floats(mean))
    assert moments.variance == pytest.approx(float(variance), rel=RTOL)


def test_a_baseline_equal_to_the_reward_leaves_no_gradient():
    moments = baselines.single_sample_moments(LOGITS, floats(REWARDS), floats(REWARDS))
    assert moments.mean.abs().max() == 0
    assert moments.variance == 0


def test_the_best_baseline_is_the_one_by_hand_and_not_the_expected_reward():
    assert baselines.best_baseline(LOGITS, floats(REWARDS)).item() == pytest.approx(float(LEAST), rel=RTOL)
    none, expected, best = baselines.variance_by_baseline(LOGITS, floats(REWARDS), [0.0, 0.86, float(LEAST)]).tolist()
    assert best < none < expected


@given(
    logits=st.lists(st.floats(-3, 3), min_size=2, max_size=5),
    rewards=st.lists(st.floats(-5, 5), min_size=5, max_size=5),
    away=st.floats(0.01, 10),
)
def test_variance_is_a_parabola_with_its_vertex_at_the_best_baseline(logits, rewards, away):
    rewards = rewards[: len(logits)]
    best = baselines.best_baseline(logits, rewards).item()
    below, least, above, twice = baselines.variance_by_baseline(
        logits, rewards, [best - away, best, best + away, best + 2 * away]
    ).tolist()
    size = 1 + max(below, above, twice)
    assert below == pytest.approx(above, rel=1e-8, abs=1e-9 * size)
    assert twice - least == pytest.approx(4 * (above - least), rel=1e-8, abs=1e-9 * size)
    assert least < above


@given(p=st.floats(0.05, 0.95), rewards=st.tuples(st.floats(-5, 5), st.floats(-5, 5)))
def test_with_two_actions_the_best_baseline_leaves_no_variance_at_all(p, rewards):
    # (r − b)·∇log p is the same vector for both actions when b = (1 − p)·r₁ + p·r₀: the weights trade places.
    logits = [math.log(1 - p), math.log(p)]
    best = baselines.best_baseline(logits, rewards)
    assert best.item() == pytest.approx((1 - p) * rewards[1] + p * rewards[0], rel=1e-9, abs=1e-9)
    assert abs(baselines.variance_by_baseline(logits, rewards, best).item()) < 1e-12


def test_a_shift_of_all_rewards_is_undone_by_the_same_shift_of_the_baseline():
    shifted = [float(r) + 10 for r in REWARDS]
    assert baselines.best_baseline(LOGITS, shifted).item() == pytest.approx(float(LEAST) + 10, rel=RTOL)
    close(
        baselines.variance_by_baseline(LOGITS, shifted, [10.0, 10.5]),
        baselines.variance_by_baseline(LOGITS, floats(REWARDS), [0.0, 0.5]),
        1e-9,  # squares of about 100 are subtracted
    )


@pytest.mark.parametrize("group_size", [2, 4])
def test_a_group_with_a_constant_baseline_has_the_variance_of_one_sample_over_its_size(group_size):
    of_group = exact.group_gradient_moments(LOGITS, floats(REWARDS), lambda r: r - 0.86, group_size=group_size)
    of_one = baselines.single_sample_moments(LOGITS, floats(REWARDS), 0.86)
    close(of_group.covariance * group_size, of_one.covariance)


# ---------------------------------------------------------------- tokens


def test_prefix_values_of_the_uniform_table_are_means_by_hand():
    prompt, first = baselines.prefix_values(UNIFORM, SCORES)
    assert prompt.item() == 2.5
    assert first.tolist() == [0.5, 4.5]


def random_table(seed, vocabulary=3, length=3):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(vocabulary,) * (step + 1) for step in range(length)]
    table = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return table, torch.randn(vocabulary**length, generator=generator, dtype=torch.float64)


def test_a_prefix_value_is_the_mean_reward_of_the_sequences_that_begin_so():
    table, rewards = random_table(0)
    values = baselines.prefix_values(table, rewards)
    assert [tuple(value.shape) for value in values] == [(), (3,), (3, 3)]
    probabilities = exact.sequence_token_logp(table).sum(-1).exp()
    tokens = exact.sequences(3, 3).tolist()
    for prefix in [(), (0,), (2,), (1, 2), (2, 0)]:
        begins = torch.tensor([tuple(row[: len(prefix)]) == prefix for row in tokens])
        mean = (probabilities * rewards)[begins].sum() / probabilities[begins].sum()
        close(values[len(prefix)][prefix], mean)


def sequence_rows(table, rewards, baseline_of):
    """Σ_t (r(y) − b(y_<t))·(onehot(y_t) − π(·|y_<t)) of each sequence, laid into the flat table by hand."""
    policies = [torch.softmax(torch.as_tensor(logits, dtype=torch.float64), -1) for logits in table]
    vocabulary, rows, weights = len(policies[0]), [], []
    for y, reward in zip(itertools.product(range(vocabulary), repeat=len(table)), rewards, strict=True):
        parts, weight = [], 1.0
        for step, policy in enumerate(policies):
            part = torch.zeros_like(policy)
            score = -policy[y[:step]].clone()
            score[y[step]] += 1
            part[y[:step]] = (reward - baseline_of(y[:step])) * score
            parts.append(part.flatten())
            weight *= policy[y[: step + 1]].item()
        rows.append(torch.cat(parts))
        weights.append(weight)
    return torch.stack(rows), torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize("critic", ["none", "prompt", "prefix"])
def test_moments_of_a_sequence_are_those_of_a_walk_through_the_table(critic):
    table, rewards = random_table(1)
    values = baselines.prefix_values(table, rewards)
    given_baselines = {"none": [0, 0, 0], "prompt": [values[0]] * 3, "prefix": values}[critic]

    def baseline_of(prefix):
        return {"none": 0.0, "prompt": values[0].item(), "prefix": values[len(prefix)][prefix].item()}[critic]

    rows, weights = sequence_rows(table, rewards.tolist(), baseline_of)
    moments = baselines.sequence_moments(table, rewards, given_baselines)
    close(moments.mean, weights @ rows)
    close(moments.covariance, (rows * weights[:, None]).T @ rows - torch.outer(weights @ rows, weights @ rows))
    close(moments.mean, torch.cat([part.flatten() for part in exact.sequence_value_gradient(table, rewards)]))


def test_variances_of_the_four_texts_are_the_hand_numbers():
    """Per text the squared norm is ½·Σ_t (r − b_t)², and ‖∇J‖² = 2·1² + 4·(1/8)² = 2.0625."""
    for critic, squares in {
        (0.0, 0.0): [0, 1, 16, 25],
        (2.5, 2.5): [6.25, 2.25, 2.25, 6.25],
        (2.5, (0.5, 4.5)): [(6.25 + 0.25) / 2, (2.25 + 0.25) / 2, (2.25 + 0.25) / 2, (6.25 + 0.25) / 2],
        (2.5, (4.5, 0.5)): [(6.25 + 20.25) / 2, (2.25 + 12.25) / 2, (2.25 + 12.25) / 2, (6.25 + 20.25) / 2],
    }.items():
        moments = baselines.sequence_moments(UNIFORM, SCORES, [torch.tensor(b, dtype=torch.float64) for b in critic])
        assert moments.variance == pytest.approx(sum(squares) / 4 - 2.0625, rel=RTOL)


def test_gradients_may_be_switched_off_outside():
    with torch.no_grad():
        assert baselines.sequence_moments(UNIFORM, SCORES, [0, 0]).variance == pytest.approx(8.4375, rel=RTOL)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: baselines.single_sample_moments([0, 0], [1, 2, 3]), r"logits and rewards must both be \(K,\).*\(3,\)"),
        (lambda: baselines.single_sample_moments([[0, 0]], [[1, 2]]), r"logits and rewards must both be \(K,\)"),
        (lambda: baselines.single_sample_moments([0, 0], [1, 2], [1, 2, 3]), r"baseline must be one number or 2"),
        (lambda: baselines.single_sample_moments([0, 0], [1, math.nan]), "rewards must be finite; got nan"),
        (lambda: baselines.variance_by_baseline([0, 0], [1, 2], [math.inf]), "baselines must be finite; got inf"),
        (lambda: baselines.best_baseline([0, 1e4], [1, 2]), "logits must give more than one action"),
        (lambda: baselines.prefix_values(UNIFORM, [1, 2, 3]), r"values must be \(4,\), one a sequence"),
        (lambda: baselines.sequence_moments(UNIFORM, SCORES, [0]), "baselines must have 2 entries, one a step; got 1"),
        (
            lambda: baselines.sequence_moments(UNIFORM, SCORES, [0, [1, 2, 3]]),
            r"baselines\[1\] must be one number or \(2,\); got shape \(3,\)",
        ),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
