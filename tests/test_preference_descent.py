"""Descending a preference loss: where populations, samples, contradictions and narrow pairs lead."""

import itertools
import math
from functools import partial

import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from test_preference_pairs import supports
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import closed_form, preference, preference_descent, preference_pairs
from labsrc.preference_descent import descend, expected_loss
from labsrc.preference_pairs import bradley_terry_pairs, count_pairs

Q, REWARDS, BETA = [0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], 0.6
OPTIMUM = [0.020805863, 0.230603537, 0.748590599]
DPO = partial(preference.dpo_loss, beta=BETA)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(rows) -> Tensor:
    return tensor(rows, dtype=torch.float64)


def margin(policy: Tensor, q, chosen: int = 0, rejected: int = 1) -> float:
    return math.log(policy[chosen] / policy[rejected]) - math.log(q[chosen] / q[rejected])


# ---------------------------------------------------------------- the expected loss


def test_the_expected_loss_is_the_mean_over_the_labels():
    labels = [(0, 1), (0, 1), (2, 1), (1, 0)]
    p, q = [0.5, 0.2, 0.3], [0.2, 0.3, 0.5]
    by_hand = 0.0
    for a, b in labels:
        h = math.log(p[a] / q[a]) - math.log(p[b] / q[b])
        by_hand += math.log(1 + math.exp(-BETA * h)) / len(labels)
    close(expected_loss(f64(p).log(), f64(q).log(), count_pairs(labels, actions=3), DPO), by_hand)


def test_logits_need_not_be_normalised_and_scale_of_the_table_does_not_matter():
    table = bradley_terry_pairs(REWARDS)
    logits, logits_ref = f64([0.3, -1.0, 0.2]), f64(Q).log()
    value = expected_loss(logits, logits_ref, table, DPO)
    close(expected_loss(logits + 7.0, logits_ref - 3.0, 250 * table, DPO), value)


def test_autograd_of_the_expected_loss_is_the_derivative():
    table = bradley_terry_pairs(REWARDS)
    for loss in (DPO, partial(preference.ipo_loss, beta=BETA)):
        gradient = assert_gradient(
            lambda x, loss=loss: expected_loss(x, f64(Q).log(), table, loss), f64([0.3, -1.0, 0.2])
        )
        # A pair lifts one logit by as much as it lowers the other.
        close(gradient.sum(), 0.0)


def test_the_least_expected_loss_is_the_entropy_of_the_labels():
    table = bradley_terry_pairs(REWARDS)
    best = expected_loss(f64(OPTIMUM).log(), f64(Q).log(), table, DPO)
    entropy = 0.0
    for a in range(3):
        for b in range(3):
            if a != b:
                wins = 1 / (1 + math.exp(REWARDS[b] - REWARDS[a]))
                entropy -= table[a, b].item() * math.log(wins)
    close(best, entropy, rtol=1e-9)  # the optimum is typed with nine decimals


# ---------------------------------------------------------------- the population leads to the closed form


def test_the_population_of_chapter_one_leads_to_its_optimum():
    run = descend(Q, bradley_terry_pairs(REWARDS), DPO, steps=60, lr=10.0)
    close(run.final, OPTIMUM, rtol=1e-7)
    assert run.slope < 1e-12
    close(run.losses[0], math.log(2))
    assert (run.losses.diff()[:10] < 0).all()
    close(run.policies[0], Q)
    assert run.policies.shape == (61, 3) and run.losses.shape == (61,)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.floats(0.1, 1.0), min_size=4, max_size=4),
    st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4),
    st.floats(0.5, 2.0),
    st.lists(st.floats(0.3, 1.0), min_size=3, max_size=3),
)
def test_whatever_is_asked_as_long_as_it_links_all_the_population_leads_to_the_optimum(weights, rewards, beta, shares):
    q = f64(weights) / sum(weights)
    # A chain 0–1–2–3: three of the six pairs are enough.
    table = bradley_terry_pairs(rewards, asked=dict(zip([(0, 1), (1, 2), (2, 3)], shares, strict=True)))
    run = descend(q, table, partial(preference.dpo_loss, beta=beta), steps=400, lr=4 / beta**2)
    close(run.final, closed_form.optimal_policy(q, rewards, beta=beta), rtol=1e-6)


@pytest.mark.parametrize("beta, expected", [(0.1, 10.986123), (0.5, 2.197225)])
def test_three_labels_of_four_lead_to_the_margin_log_three_over_beta(beta, expected):
    run = descend([0.5, 0.5], [[0, 3], [1, 0]], partial(preference.dpo_loss, beta=beta), steps=400, lr=1 / beta**2)
    assert margin(run.final, [0.5, 0.5]) == pytest.approx(expected, abs=1e-6)


def test_the_first_step_is_half_of_beta_times_the_share_of_agreement():
    for beta in (0.1, 0.5):
        run = descend([0.5, 0.5], [[0, 3], [1, 0]], partial(preference.dpo_loss, beta=beta), steps=1, lr=0.01)
        # Each logit moves by lr·β/2·(0.75 − 0.25), one up and one down.
        assert margin(run.final, [0.5, 0.5]) == pytest.approx(2 * 0.01 * beta / 2 * 0.5, rel=1e-9)


def test_ipo_stops_at_its_share_of_the_target_and_certain_labels_reach_it():
    for wins, losses, share in ((3, 1, 0.5), (4, 0, 1.0)):
        run = descend([0.5, 0.5], [[0, wins], [losses, 0]], partial(preference.ipo_loss, beta=0.1), steps=200, lr=0.1)
        assert margin(run.final, [0.5, 0.5]) == pytest.approx(share * 5.0, rel=1e-9)


# ---------------------------------------------------------------- samples, contradictions, certain labels


def test_exactly_the_tables_that_settle_lead_two_starts_to_one_policy():
    tables = f64(list(supports(3)))
    runs = [
        descend(Q, tables, partial(preference.dpo_loss, beta=1.0), steps=600, lr=2.0, start=start).policies.log()
        for start in (Q, [0.6, 0.3, 0.1])
    ]
    # Unanimous labels keep moving, to the same corner from both starts; unlinked ones come to rest, but apart.
    at_rest = (runs[0][:, -1] - runs[0][:, -2]).abs().amax(-1) < 1e-9
    together = (runs[0][:, -1] - runs[1][:, -1]).abs().amax(-1) < 1e-9
    assert torch.equal(preference_pairs.settles(tables), at_rest & together)
    assert (at_rest & ~together).any() and (~at_rest).any()


def test_a_pair_labelled_once_each_way_returns_the_odds_of_the_reference():
    run = descend(Q, count_pairs([(0, 1), (1, 0)], actions=3), DPO, steps=200, lr=5.0, start=[0.6, 0.2, 0.2])
    assert run.final[0].item() / run.final[1].item() == pytest.approx(2 / 3, rel=1e-9)


def test_log_odds_of_every_step_are_those_of_the_policies_from_the_reference_to_the_margin():
    labels = [[[0, 3], [1, 0]], [[0, 1], [1, 0]]]
    run = descend([0.2, 0.8], labels, DPO, steps=300, lr=4.0)
    odds = run.log_odds()
    assert odds.shape == (2, 301)
    # Both begin at the reference's. Three labels of four add log(3)/β, even ones add nothing.
    close(odds[:, 0], [math.log(1 / 4)] * 2)
    close(odds[:, -1], [math.log(1 / 4) + math.log(3) / BETA, math.log(1 / 4)], rtol=1e-6)
    close(run.log_odds(1, 0), -odds)


def test_a_circle_of_preferences_teaches_nothing_and_costs_log_two():
    circle = f64([[0, 3, 1], [1, 0, 3], [3, 1, 0]])
    run = descend(Q, circle, DPO, steps=50, lr=5.0)
    close(run.policies, f64(Q).expand(51, 3))
    close(run.losses, [math.log(2)] * 51)


def test_certain_labels_push_without_end():
    run = descend([0.5, 0.5], [[0, 1], [0, 0]], partial(preference.dpo_loss, beta=1.0), steps=2000, lr=1.0)
    margins = [margin(run.policies[step], [0.5, 0.5]) for step in (20, 200, 2000)]
    # Near log(2·step): ten times the steps add log 10.
    assert [b - a for a, b in itertools.pairwise(margins)] == pytest.approx([math.log(10)] * 2, abs=0.1)


def test_the_mean_distance_of_samples_is_what_the_fisher_information_predicts():
    population = bradley_terry_pairs(REWARDS)
    # KL(p*‖p̂) ≈ ½·δᵀ·Cov(p*)·δ for small errors δ of the logits, whose covariance is the inverse information over n.
    optimum = f64(OPTIMUM)
    information = torch.zeros(3, 3, dtype=torch.float64)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        direction = torch.zeros(3, dtype=torch.float64)
        direction[a], direction[b] = 1.0, -1.0
        information += 3 * population[a, b] * population[b, a] * BETA**2 * torch.outer(direction, direction)
    covariance = optimum.diag() - torch.outer(optimum, optimum)
    predicted = 0.5 * (covariance @ torch.linalg.pinv(information)).trace().item()
    drawn = preference_pairs.sample_pairs(population, 20_000, generator=torch.Generator().manual_seed(0), sets=400)
    fitted = descend(Q, drawn, DPO, steps=60, lr=10.0).final
    distance = 20_000 * (optimum * (optimum.log() - fitted.log())).sum(-1)
    error = distance.std().item() / math.sqrt(len(distance))
    assert abs(distance.mean().item() - predicted) <= 4 * error + 0.01 * predicted


# ---------------------------------------------------------------- narrow pairs, shared features


def test_pairs_that_leave_an_action_out_settle_the_others_and_never_touch_its_logit():
    table = bradley_terry_pairs(REWARDS, asked={(0, 1): 1.0})
    for start in (Q, [0.1, 0.1, 0.8]):
        run = descend(Q, table, DPO, steps=200, lr=5.0, start=start)
        optimum = closed_form.optimal_policy(Q, REWARDS, beta=BETA)
        close(run.final[0] / run.final[1], optimum[0] / optimum[1], rtol=1e-9)
        # Logits 0 and 1 move by ±d, logit 2 not at all.
        d = (math.log(run.final[0] / run.final[1]) - math.log(start[0] / start[1])) / 2
        rest = start[2] / (start[0] * math.exp(d) + start[1] * math.exp(-d) + start[2])
        assert run.final[2].item() == pytest.approx(rest, rel=1e-9)


def test_the_loss_does_not_see_how_much_mass_an_uncovered_action_has():
    table = bradley_terry_pairs(REWARDS, asked={(0, 1): 1.0})
    values = [expected_loss(f64([0.1, 1.3, third]), f64(Q).log(), table, DPO).item() for third in (-9.0, 0.0, 9.0)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-12)


def test_in_a_table_one_pair_always_lifts_its_chosen_action():
    for p in ([0.4, 0.4, 0.2], [0.98, 0.01, 0.01], [0.01, 0.98, 0.01]):
        for lr in (0.01, 1.0, 50.0):
            run = descend(Q, count_pairs([(0, 1)], actions=3), DPO, steps=1, lr=lr, start=p)
            assert run.final[0] > p[0] and run.final[1] < p[1]


def test_with_a_shared_feature_the_chosen_action_falls_while_the_loss_falls():
    features, q = [[1.0], [0.0], [3.0]], [1 / 3] * 3
    run = descend(q, count_pairs([(0, 1)], actions=3), DPO, steps=20, lr=0.1, features=features)
    assert (run.policies[:, 0].diff() < 0).all()
    assert (run.losses.diff() < 0).all()
    # d log p(chosen) = β/2·lr·(φ_w − mean φ)·(φ_w − φ_l), to first order; the mean is 4/3.
    first = descend(q, count_pairs([(0, 1)], actions=3), DPO, steps=1, lr=1e-5, features=features).final[0].log()
    assert (first - math.log(1 / 3)).item() == pytest.approx(1e-5 * BETA / 2 * (1 - 4 / 3) * 1, rel=1e-4)


def test_features_of_an_identity_are_the_table_itself():
    table = bradley_terry_pairs(REWARDS)
    one = descend(Q, table, DPO, steps=5, lr=1.0)
    close(descend(Q, table, DPO, steps=5, lr=1.0, features=torch.eye(3)).policies, one.policies)


def test_runs_side_by_side_are_those_run_alone():
    tables = f64([[[0, 3, 1], [1, 0, 0], [2, 2, 0]], [[0, 1, 0], [4, 0, 1], [0, 1, 0]]])
    both = descend(Q, tables, DPO, steps=7, lr=2.0)
    assert both.policies.shape == (2, 8, 3) and both.losses.shape == (2, 8)
    for index, table in enumerate(tables):
        alone = descend(Q, table, DPO, steps=7, lr=2.0)
        close(both.policies[index], alone.policies)
        close(both.losses[index], alone.losses)


def test_the_slope_is_that_of_the_last_policy():
    # At margin h the gradient of each logit is ±β·(σ(βh) − 0.75).
    run = descend([0.5, 0.5], [[0, 3], [1, 0]], DPO, steps=1, lr=2.0)
    wins = 1 / (1 + math.exp(-BETA * margin(run.final, [0.5, 0.5])))
    assert run.slope == pytest.approx(BETA * (0.75 - wins), rel=1e-9)


def test_the_exact_gradient_is_there_without_autograd():
    with torch.no_grad():
        run = descend(Q, bradley_terry_pairs(REWARDS), DPO, steps=3, lr=1.0)
    assert run.losses[-1] < run.losses[0] and not run.policies.requires_grad


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"q": [0.5, 0.5, 0.0]}, r"q must be \(K,\) with every probability above 0; got \[0.5, 0.5, 0.0\]"),
        ({"q": [0.5, 0.4, 0.2]}, "q must sum to 1"),
        ({"start": [0.5, 0.5]}, r"q and start must have the same shape; got q \(3,\), start \(2,\)"),
        ({"start": [1.0, 0.0, 0.0]}, "start must be .* with every probability above 0"),
        ({"pairs": [[0, 1], [1, 0]]}, r"pairs must list the 3 actions of q; got shape \(2, 2\)"),
        ({"pairs": [[0, 1, 0], [1, 0, -1], [0, 0, 0]]}, "pairs must be non-negative"),
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0"),
        ({"lr": 0}, "lr must be greater than 0; got 0"),
        ({"features": [[1.0], [0.0]]}, r"features must be \(3, D\), a row an action; got shape \(2, 1\)"),
        ({"features": [1.0, 0.0, 3.0]}, r"features must be \(3, D\)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changed, message):
    arguments = {"q": Q, "pairs": bradley_terry_pairs(REWARDS), "loss": DPO, "steps": 1, "lr": 1.0} | changed
    with pytest.raises(ValueError, match=message):
        preference_descent.descend(**arguments)


def test_tables_of_other_actions_are_refused():
    with pytest.raises(ValueError, match=r"must list the same actions; got .*'logits_ref': 1"):
        # A single action would otherwise broadcast.
        expected_loss([0.0, 0.0], [0.0], [[0.0, 1.0], [1.0, 0.0]], DPO)
