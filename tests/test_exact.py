"""labsrc.exact against rational enumeration, other formulas, finite differences and invariances."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from finite_differences import ERROR, assert_gradient, central_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL

from labsrc import advantages, exact, kl

P = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
REWARDS = (Fraction(-1), Fraction(1, 5), Fraction(2))
LOGITS = [math.log(p) for p in P]
NABLA_J = [-0.372, -0.198, 0.570]  # p(a)·(r(a) − 0.86), by hand


def floats(values):
    return [floats(value) for value in values] if isinstance(values, list | tuple) else float(values)


def close(actual, expected):
    """Within RTOL of the value, or of 1 where the value is near zero; float64 unless `expected` is a tensor."""
    if not isinstance(expected, torch.Tensor):
        expected = torch.tensor(floats(expected), dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=RTOL, atol=RTOL)


def assert_slope(gradient, function, x):
    assert (gradient - central_gradient(function, x)).abs().max() < ERROR


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------- actions


def test_value_and_its_gradient_are_the_hand_numbers():
    assert exact.expected_value(LOGITS, floats(REWARDS)).item() == pytest.approx(0.86, rel=RTOL)
    close(exact.value_gradient(LOGITS, floats(REWARDS)), NABLA_J)


def test_value_gradient_is_the_slope_of_the_value_row_by_row():
    logits, rewards = random(2, 4), random(4, seed=1)
    gradient = exact.value_gradient(logits, rewards)
    assert_slope(gradient, lambda x: exact.expected_value(x, rewards).sum(), logits)
    assert torch.autograd.gradcheck(exact.expected_value, (logits.requires_grad_(), rewards.requires_grad_()))


def test_kl_gradient_is_the_published_one_and_the_slope_of_the_kl():
    reference = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    logits = torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64)
    gradient = exact.kl_gradient(logits, reference.log())
    assert [f"{entry:.5f}" for entry in gradient.tolist()] == ["-0.23474", "-0.07766", "0.31240"]
    assert_slope(gradient, lambda x: kl.kl_divergence(x.softmax(-1), reference), logits)


def test_kl_gradient_is_finite_where_a_probability_underflows():
    close(exact.kl_gradient([0.0, -800.0], [0.0, 0.0]), [0, 0])
    close(exact.kl_gradient([0.0, 0.0], [0.0, -800.0]), [-200, 200])


def test_a_float32_tensor_stays_float32():
    logits = torch.zeros(2)
    assert exact.expected_value(logits, torch.ones(2)).dtype == torch.float32
    assert exact.kl_gradient(logits, logits).dtype == torch.float32
    assert exact.group_gradient(logits, torch.ones(2), advantages.centered, group_size=2).dtype == torch.float32


def test_a_float32_policy_takes_rewards_from_a_list():
    logits, rewards = [0.0, 0.5], [0.0, 1.0]
    mixed = exact.group_gradient(torch.tensor(logits), rewards, advantages.centered, group_size=2)
    assert mixed.dtype == torch.float64
    torch.testing.assert_close(mixed, exact.value_gradient(logits, rewards) / 2, rtol=1e-6, atol=0)


# ---------------------------------------------------------------- groups


def enumerated(p, rewards, group_size, advantage_fn):
    """Mean and covariance of (1/G)·Σ A_i·(onehot(a_i) − p) over all groups, in the arithmetic of the arguments."""
    actions = range(len(p))
    outcomes = []
    for group in itertools.product(actions, repeat=group_size):
        signals = list(zip(group, advantage_fn([rewards[a] for a in group]), strict=True))
        estimate = [sum(signal * ((a == k) - p[k]) for a, signal in signals) / group_size for k in actions]
        outcomes.append((math.prod(p[a] for a in group), estimate))
    mean = [sum(w * g[k] for w, g in outcomes) for k in actions]
    second = [[sum(w * g[j] * g[k] for w, g in outcomes) for k in actions] for j in actions]
    return mean, [[second[j][k] - mean[j] * mean[k] for k in actions] for j in actions]


def less_group_mean(rewards):
    return [r - Fraction(sum(rewards), len(rewards)) for r in rewards]


def less_mean_of_others(rewards):
    return [r - Fraction(sum(rewards) - r, len(rewards) - 1) for r in rewards]


def over_deviation(ddof):
    def advantage_fn(rewards):
        centred = less_group_mean(rewards)
        deviation = math.sqrt(sum(c * c for c in centred) / (len(rewards) - ddof))
        return [float(c) / deviation if deviation else 0.0 for c in centred]

    return advantage_fn


def standardized_without_eps(ddof):
    return lambda rewards: advantages.standardized(rewards, std_eps=0.0, ddof=ddof)


def test_groups_come_in_the_order_of_itertools_product():
    assert exact.groups(3, 4).tolist() == [list(group) for group in itertools.product(range(3), repeat=4)]
    assert exact.groups(3, 1).tolist() == [[0], [1], [2]]
    assert exact.groups(1, 3).tolist() == [[0, 0, 0]]


def test_all_27_groups_give_two_thirds_of_the_gradient_when_centred_and_all_of_it_leaving_one_out():
    mean, _ = enumerated(P, REWARDS, 3, less_group_mean)
    assert mean == [Fraction(2, 3) * Fraction(str(entry)) for entry in NABLA_J]
    close(exact.group_gradient(LOGITS, floats(REWARDS), advantages.centered, group_size=3), mean)
    close(exact.group_gradient(LOGITS, floats(REWARDS), advantages.leave_one_out, group_size=3), NABLA_J)


@pytest.mark.parametrize("ddof", [0, 1])
def test_standardising_turns_the_gradient(ddof):
    mean, _ = enumerated(P, REWARDS, 3, over_deviation(ddof))
    gradient = exact.group_gradient(LOGITS, floats(REWARDS), standardized_without_eps(ddof), group_size=3)
    close(gradient, mean)
    ratios = [entry / of_j for entry, of_j in zip(gradient.tolist(), NABLA_J, strict=True)]
    assert max(ratios) / min(ratios) > 1.05, "the components are not one multiple of ∇J"


@pytest.mark.parametrize("group_size", [2, 3, 4])
@pytest.mark.parametrize(
    ("advantage_fn", "by_hand"),
    [
        (advantages.centered, less_group_mean),
        (advantages.leave_one_out, less_mean_of_others),
        (standardized_without_eps(0), over_deviation(0)),
        (lambda rewards: rewards, lambda rewards: rewards),
    ],
    ids=["centred", "leave one out", "standardised", "no baseline"],
)
def test_mean_and_covariance_are_those_of_the_rational_enumeration(group_size, advantage_fn, by_hand):
    mean, covariance = enumerated(P, REWARDS, group_size, by_hand)
    moments = exact.group_gradient_moments(LOGITS, floats(REWARDS), advantage_fn, group_size=group_size)
    close(moments.mean, mean)
    close(moments.covariance, covariance)
    assert moments.variance == pytest.approx(float(sum(covariance[k][k] for k in range(3))), rel=RTOL)


def covariance_over_actions(vectors):
    """Σ p·v·vᵀ − (Σ p·v)(Σ p·v)ᵀ for one vector an action."""
    p = torch.tensor(floats(P), dtype=torch.float64)
    return torch.einsum("a,aj,ak->jk", p, vectors, vectors) - torch.outer(p @ vectors, p @ vectors)


@pytest.mark.parametrize("group_size", [2, 5, 8])
def test_covariance_without_a_baseline_is_that_of_one_sample_over_the_group_size(group_size):
    one_sample = torch.tensor(
        [[float(REWARDS[a] * ((a == k) - P[k])) for k in range(3)] for a in range(3)], dtype=torch.float64
    )
    moments = exact.group_gradient_moments(LOGITS, floats(REWARDS), lambda rewards: rewards, group_size=group_size)
    close(moments.covariance, covariance_over_actions(one_sample) / group_size)


@pytest.mark.parametrize("group_size", [2, 3, 6])
def test_covariance_leaving_one_out_is_hoeffdings(group_size):
    # The estimator is a U-statistic with kernel h(x, y) = (r_x − r_y)(s_x − s_y)/2, s the score; Hoeffding (1948).
    p, rewards = torch.tensor([floats(P), floats(REWARDS)], dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    kernel = (rewards[:, None, None] - rewards[None, :, None]) * (eye[:, None] - eye[None, :]) / 2
    one_fixed = covariance_over_actions(torch.einsum("y,xyk->xk", p, kernel))
    mean = torch.einsum("x,y,xyk->k", p, p, kernel)
    none_fixed = torch.einsum("x,y,xyj,xyk->jk", p, p, kernel, kernel) - torch.outer(mean, mean)
    expected = (4 * (group_size - 2) * one_fixed + 2 * none_fixed) / (group_size * (group_size - 1))
    moments = exact.group_gradient_moments(LOGITS, floats(REWARDS), advantages.leave_one_out, group_size=group_size)
    close(moments.covariance, expected)


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(4, 5)])
@pytest.mark.parametrize("group_size", [2, 4])
def test_the_factor_1_minus_1_over_g_holds_unconditionally_but_not_given_a_group_that_disagrees(p, group_size):
    agree = p**group_size + (1 - p) ** group_size
    unconditional = (1 - Fraction(1, group_size)) * p * (1 - p)
    gradient = exact.group_gradient([math.log(1 - p), math.log(p)], [0, 1], advantages.centered, group_size=group_size)
    close(gradient, [-unconditional, unconditional])
    # Discarding the groups that agree by hand: the factor now depends on how hard the prompt is.
    conditional = Fraction(0)
    for group in itertools.product((0, 1), repeat=group_size):
        if len(set(group)) == 2:
            weight = math.prod(p if r else 1 - p for r in group) / (1 - agree)
            advantage = less_group_mean(group)
            conditional += weight * sum(a * (r - p) for a, r in zip(advantage, group, strict=True)) / group_size
    close(gradient / float(1 - agree), [-conditional, conditional])
    assert conditional != unconditional


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(4, 5)])
def test_given_a_group_that_disagrees_its_mean_reward_leans_towards_one_half(p):
    members = exact.groups(2, 4)
    weights = torch.tensor([float(1 - p), float(p)], dtype=torch.float64)[members].prod(-1)
    kept = weights * ~advantages.is_constant_group(members)
    baseline = (kept @ members.double().mean(-1)) / kept.sum()
    close(baseline, (p - p**4) / (1 - p**4 - (1 - p) ** 4))
    lean = float(baseline) - float(p)
    assert lean * (0.5 - float(p)) > 0 or (p == Fraction(1, 2) and abs(lean) < RTOL)


def test_share_of_wasted_groups_is_the_known_one():
    for group_size, share in ((4, "0.656"), (8, "0.430"), (16, "0.185")):
        members = exact.groups(2, group_size)
        weights = torch.tensor([0.9, 0.1], dtype=torch.float64)[members].prod(-1)
        assert f"{weights[advantages.is_constant_group(members)].sum():.3f}" == share


@st.composite
def small_cases(draw):
    actions = draw(st.integers(2, 4))
    # Eighths, so that shifting a reward by a whole number rounds nothing.
    rewards = draw(st.lists(st.integers(-16, 16), min_size=actions, max_size=actions))
    logits = draw(st.lists(st.floats(-3, 3), min_size=actions, max_size=actions))
    return {"logits": logits, "rewards": [r / 8 for r in rewards]}, draw(st.integers(2, 4))


BASELINES = [advantages.centered, advantages.leave_one_out, advantages.standardized]


@pytest.mark.parametrize("advantage_fn", BASELINES, ids=lambda f: f.__name__)
@given(case=small_cases(), shift=st.integers(-100, 100), order=st.randoms(use_true_random=False))
def test_group_gradient_ignores_shifts_and_follows_the_order_of_actions(advantage_fn, case, shift, order):
    arguments, group_size = case
    gradient = exact.group_gradient(**arguments, advantage_fn=advantage_fn, group_size=group_size)
    for name in ("rewards", "logits"):
        shifted = arguments | {name: [value + shift for value in arguments[name]]}
        close(exact.group_gradient(**shifted, advantage_fn=advantage_fn, group_size=group_size), gradient)
    new = list(range(len(gradient)))
    order.shuffle(new)
    permuted = {name: [values[i] for i in new] for name, values in arguments.items()}
    close(exact.group_gradient(**permuted, advantage_fn=advantage_fn, group_size=group_size), gradient[new])
    close(gradient.sum(), 0)


# ---------------------------------------------------------------- the weight w_G(p)


def test_weight_at_one_percent_is_the_known_one():
    assert f"{exact.standardized_objective_weight(0.01, group_size=8):.3f}" == "2.609"
    assert f"{exact.standardized_objective_weight(0.01, group_size=64):.3f}" == "6.736"


def test_weight_of_a_pair_is_one_whatever_p():
    close(exact.standardized_objective_weight([0.0, 0.2, 0.9], group_size=2), [1, 1, 1])
    close(exact.standardized_objective_weight([[0.2], [0.9]], group_size=2, ddof=1), [[0.5**0.5], [0.5**0.5]])


@pytest.mark.parametrize("group_size", [3, 8, 64])
@pytest.mark.parametrize("p", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)])
def test_weight_is_the_expected_group_deviation_over_the_variance(p, group_size):
    # Sum the estimator over a group with S successes: it is √(S(G − S))/G, the group's deviation, times ∇p/(p(1 − p)).
    chances = [math.comb(group_size, s) * p**s * (1 - p) ** (group_size - s) for s in range(group_size + 1)]
    deviation = sum(float(c) * math.sqrt(s * (group_size - s)) / group_size for s, c in enumerate(chances))
    close(exact.standardized_objective_weight(float(p), group_size=group_size), deviation / float(p * (1 - p)))


def test_standardising_can_turn_the_gradient_until_it_points_downhill():
    # The great answer is in 3 groups of 100; in the others 0 against 1 counts as much as 1 against 100.
    logits, rewards = [math.log(p) for p in (0.09, 0.01, 0.9)], [0.0, 100.0, 1.0]
    step = exact.group_gradient(logits, rewards, standardized_without_eps(0), group_size=3)
    uphill = exact.value_gradient(logits, rewards)
    # An enumeration in plain NumPy gave -0.24507536.
    assert torch.cosine_similarity(step, uphill, dim=0).item() == pytest.approx(-0.24507536, abs=1e-8)
    assert step[2] > 0 > uphill[2]


def test_the_standardised_step_of_0_1_rewards_is_the_gradient_of_the_integral_of_the_weight():
    # For groups of four w_G is a polynomial in p of degree 3 at most, so ten Gauss nodes integrate it exactly.
    nodes, lengths = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(10))
    rewards = [0.0, 1.0, 1.0]

    def hill(logits):
        p = exact.expected_value(logits, rewards)
        return p / 2 * (lengths @ exact.standardized_objective_weight(p / 2 * (nodes + 1), group_size=4))

    for logits in random(5, 3):
        step = exact.group_gradient(logits, rewards, standardized_without_eps(0), group_size=4)
        assert_slope(step, hill, logits)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("group_size", [2, 3, 6])
def test_weight_times_the_gradient_of_p_is_the_standardised_group_gradient(ddof, group_size):
    advantage_fn = standardized_without_eps(ddof)
    for probabilities, rewards in (([0.7, 0.3], [0, 1]), ([0.02, 0.98], [0, 1]), ([0.2, 0.3, 0.5], [1, 0, 1])):
        p = sum(q for q, r in zip(probabilities, rewards, strict=True) if r)
        nabla_p = [q * (r - p) for q, r in zip(probabilities, rewards, strict=True)]
        weight = exact.standardized_objective_weight(p, group_size=group_size, ddof=ddof).item()
        logits = [math.log(q) for q in probabilities]
        gradient = exact.group_gradient(logits, rewards, advantage_fn, group_size=group_size)
        close(gradient, [weight * entry for entry in nabla_p])


@given(numerator=st.integers(0, 64), group_size=st.integers(2, 50), ddof=st.integers(0, 1))
def test_weight_is_the_same_for_success_and_failure(numerator, group_size, ddof):
    p = numerator / 64
    weights = exact.standardized_objective_weight([p, 1 - p], group_size=group_size, ddof=ddof)
    close(weights[0], weights[1])


@pytest.mark.parametrize("group_size", [2, 8, 1000])
def test_weight_tends_to_the_root_of_g_minus_1_at_both_ends_and_is_finite_there(group_size):
    ends = exact.standardized_objective_weight([0.0, 1e-16, 1.0], group_size=group_size)
    close(ends, [math.sqrt(group_size - 1)] * 3)


@pytest.mark.parametrize(("p", "smallest"), [(0.5, 100), (0.2, 400), (0.01, 8000)])
def test_weight_tends_to_the_slope_of_twice_the_arcsine_of_the_root(p, smallest):
    # The gap is a series in 1/G; each pass over doubled G removes its next power (Richardson).
    sizes = [smallest * 2**i for i in range(6)]
    row = [exact.standardized_objective_weight(p, group_size=size).item() for size in sizes]
    for power in range(1, 6):
        row = [(2**power * fine - coarse) / (2**power - 1) for coarse, fine in itertools.pairwise(row)]
    assert row[0] == pytest.approx(1 / math.sqrt(p * (1 - p)), rel=1e-8)
    if p == 0.01:
        assert f"{row[0]:.2f}" == "10.05"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_of_a_short_float_is_right_to_its_last_digits(dtype):
    p = torch.tensor([0.01, 0.5], dtype=dtype)
    short = exact.standardized_objective_weight(p, group_size=1024)
    assert short.dtype == dtype
    long = exact.standardized_objective_weight(p.double(), group_size=1024)
    torch.testing.assert_close(short.double(), long, rtol=torch.finfo(dtype).eps, atol=0)


def test_gradient_of_the_weight_in_p_is_its_slope():
    p = torch.tensor([[0.1, 0.3, 0.95]], dtype=torch.float64)
    assert_gradient(lambda p: exact.standardized_objective_weight(p, group_size=6).sum(), p)


# ---------------------------------------------------------------- sequences

SHAPES = [(3, 3), (2, 4), (4, 2), (5, 1), (1, 2)]


def random_table(vocabulary, length, seed=0):
    return [random(*[vocabulary] * (step + 1), seed=seed + step) for step in range(length)]


def token_logp_by_walking(table, sequence):
    """log π(y_t | y_<t), read off the table one prefix at a time."""
    found = []
    for step, token in enumerate(sequence):
        logits = table[step].tolist()
        for earlier in sequence[:step]:
            logits = logits[earlier]
        found.append(logits[token] - math.log(sum(math.exp(logit) for logit in logits)))
    return found


@pytest.mark.parametrize(("vocabulary", "length"), SHAPES)
def test_sequences_and_their_log_probabilities_are_those_of_a_walk_through_the_table(vocabulary, length):
    table = random_table(vocabulary, length)
    every = list(itertools.product(range(vocabulary), repeat=length))
    assert exact.sequences(vocabulary, length).tolist() == [list(sequence) for sequence in every]
    logp = exact.sequence_token_logp(table)
    close(logp, [token_logp_by_walking(table, sequence) for sequence in every])
    close(logp.sum(-1).exp().sum(), 1)


def test_a_sequence_of_one_token_is_an_action():
    logits, reference, values = random(5), random(5, seed=1), random(5, seed=2)
    close(exact.sequence_expected_value([logits], values), exact.expected_value(logits, values))
    close(exact.sequence_value_gradient([logits], values)[0], exact.value_gradient(logits, values))
    close(exact.sequence_kl([logits], [reference]), kl.kl_divergence(logits.softmax(-1), reference.softmax(-1)))


def test_expected_value_of_a_token_is_its_marginal():
    # First token 0 or 1 with 1/4 and 3/4; then 1 with 1/2 after 0, with 1/5 after 1: P(y₂ = 1) = 1/8 + 3/20.
    table = [[0, math.log(3)], [[0, 0], [math.log(4), 0]]]
    close(exact.sequence_expected_value(table, exact.sequences(2, 2)[:, 1]), Fraction(11, 40))


@pytest.mark.parametrize(("vocabulary", "length"), SHAPES)
def test_sequence_kl_is_the_sum_of_the_next_token_kls_over_the_prefixes_met(vocabulary, length):
    table, reference = random_table(vocabulary, length), random_table(vocabulary, length, seed=10)
    met, total = torch.ones((), dtype=torch.float64), 0.0
    for logits, logits_ref in zip(table, reference, strict=True):
        total = total + (met * kl.kl_divergence(logits.softmax(-1), logits_ref.softmax(-1))).sum()
        met = met[..., None] * logits.softmax(-1)
    close(exact.sequence_kl(table, reference), total)


def test_sequence_kl_is_finite_where_a_sequence_has_no_measurable_probability():
    close(exact.sequence_kl([[0, -800], [[0, 0], [0, 0]]], [[0, 0], [[0, 0], [0, 0]]]), math.log(2))


def test_gradients_through_sequences_are_right():
    table, reference, values = random_table(2, 3), random_table(2, 3, seed=5), random(8)
    leaves = [logits.requires_grad_() for logits in [*table, *reference]]
    assert torch.autograd.gradcheck(lambda *t: exact.sequence_kl(t[:3], t[3:]), leaves)
    assert torch.autograd.gradcheck(lambda *t: exact.sequence_expected_value(t[:3], t[3]), [*table, values])
    assert torch.autograd.gradcheck(lambda *t: exact.sequence_token_logp(t), table)


def test_sequence_value_gradient_is_the_slope_of_the_expected_value():
    table, values = random_table(3, 2), random(9)
    first, second = exact.sequence_value_gradient(table, values)
    assert_slope(first, lambda x: exact.sequence_expected_value([x, table[1]], values), table[0])
    assert_slope(second, lambda x: exact.sequence_expected_value([table[0], x], values), table[1])


def test_sequence_value_gradient_works_where_gradients_are_switched_off():
    with torch.no_grad():
        (gradient,) = exact.sequence_value_gradient([LOGITS], floats(REWARDS))
    close(gradient, NABLA_J)


def test_gradient_of_the_sequence_kl_adds_what_the_first_token_does_to_the_later_kl():
    table, reference = random_table(3, 2), random_table(3, 2, seed=7)
    log_ratio = exact.sequence_token_logp(table) - exact.sequence_token_logp(reference)
    first, second = exact.sequence_value_gradient(table, log_ratio.sum(-1))
    own = exact.kl_gradient(table[0], reference[0])
    later = exact.value_gradient(table[0], kl.kl_divergence(table[1].softmax(-1), reference[1].softmax(-1)))
    close(first, own + later)
    close(second, table[0].softmax(-1)[:, None] * exact.kl_gradient(table[1], reference[1]))
    assert_slope(first, lambda x: exact.sequence_kl([x, table[1]], reference), table[0])


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: exact.expected_value([0, 1], [0, 1, 2]), r"same actions.*'logits': 2, 'values': 3"),
        (lambda: exact.expected_value(0.5, [1.0]), r"same actions.*'logits': 0, 'values': 1"),
        (lambda: exact.expected_value(0.5, 1.0), r"same actions.*'logits': 0, 'values': 0"),
        (lambda: exact.expected_value([[0, 1]] * 2, [[0, 1]] * 3), r"logits \(2, 2\), values \(3, 2\)"),
        (lambda: exact.value_gradient([0, math.nan], [0, 1]), "logits must be finite"),
        (lambda: exact.kl_gradient([0, 1], [0, math.inf]), "logits_ref must be finite"),
        (lambda: exact.groups(0, 2), "actions must be .* at least 1; got 0"),
        (lambda: exact.groups(2, 0), "group_size must be .* at least 1; got 0"),
        (lambda: exact.groups(3, 13), r"at most 1048576 groups; got 3\^13 = 1594323"),
        (lambda: exact.groups(10, 10**4), r"got 10\^10000 ≈ 10\^10000"),
        (lambda: exact.groups(2**20 + 1, 1), r"got 1048577\^1 = 1048577"),
        (lambda: exact.group_gradient([0, 1], [0, 1], advantages.centered, group_size=1), "group_size must be .* 2"),
        (lambda: exact.group_gradient([[0, 1]], [0, 1], advantages.centered, group_size=2), r"\(K,\).*\(1, 2\)"),
        (lambda: exact.group_gradient([0, 1], [[0, 1]], advantages.centered, group_size=2), r"rewards .*\(1, 2\)"),
        (lambda: exact.group_gradient([0, 1], [0, 1], lambda r: r.sum(-1), group_size=2), r"\(4, 2\); got \(4,\)"),
        (lambda: exact.group_gradient([0, 1], [0, 1], lambda r: r / 0, group_size=2), r"advantage_fn\(rewards\) must"),
        (lambda: exact.group_gradient([0.0] * 2, [0, 1], None, group_size=21), r"2\^21 = 2097152"),
        (lambda: exact.standardized_objective_weight([0.5, 1.5], group_size=4), r"p must be .*from 0.5 to 1.5"),
        (lambda: exact.standardized_objective_weight([-0.5, 1], group_size=4), r"p must be .*from -0.5 to 1.0"),
        (lambda: exact.standardized_objective_weight(math.nan, group_size=4), "p must be finite"),
        (lambda: exact.standardized_objective_weight(0.5, group_size=1), "group_size must be .* at least 2; got 1"),
        (lambda: exact.standardized_objective_weight(0.5, group_size=4, ddof=2), r"ddof must be one of \[0, 1\]"),
        (lambda: exact.sequences(0, 2), "vocabulary must be .* at least 1; got 0"),
        (lambda: exact.sequences(2, 0), "length must be .* at least 1; got 0"),
        (lambda: exact.sequences(2, 21), r"at most 1048576 sequences; got 2\^21 = 2097152"),
        (lambda: exact.sequence_token_logp([]), "at least one step"),
        (lambda: exact.sequence_token_logp([[0, 1], [[0, 1]]]), r"table\[1\] must have shape \(2, 2\); got \(1, 2\)"),
        (lambda: exact.sequence_token_logp([[[0, 1]] * 2]), r"table\[0\] must have shape \(V,\).*got \(2, 2\)"),
        (lambda: exact.sequence_token_logp([0.5]), r"table\[0\] must have shape \(V,\).*got \(\)"),
        (lambda: exact.sequence_token_logp([[0, math.inf]]), r"table\[0\] must be finite"),
        (lambda: exact.sequence_expected_value([[0, 1]], [1, 2, 3]), r"values must be \(2,\).*\(3,\)"),
        (lambda: exact.sequence_value_gradient([[0, 1]], [math.nan, 1]), "values must be finite"),
        (lambda: exact.sequence_kl([[0, 1]], [[0, 1, 2]]), r"table_ref must .*\(2, 1\); got \(3, 1\)"),
        (lambda: exact.sequence_kl([[0] * 4], [[0, 1], [[0, 1]] * 2]), r"table_ref must .*\(4, 1\); got \(4, 2\)"),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_a_table_is_refused_by_its_size_before_it_is_enumerated(monkeypatch):
    monkeypatch.setattr(exact, "MAX_OUTCOMES", 8)
    assert exact.sequence_token_logp(random_table(2, 3)).shape == (8, 3)
    assert len(exact.groups(2, 3)) == len(exact.sequences(8, 1)) == 8
    with pytest.raises(ValueError, match=r"at most 8 sequences; got 3\^2 = 9"):
        exact.sequence_token_logp(random_table(3, 2))
