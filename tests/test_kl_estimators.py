"""Placements of the KL estimators: the weight on ∇log π worked on paper, against autograd; the table; training."""

import math

import pytest
import torch
from finite_differences import central_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor

from labsrc import kl, kl_estimators


def f64(values) -> Tensor:
    return tensor(values, dtype=torch.float64)


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


LOGITS, REFERENCE, OLD = f64([0.1, 0.4, 0.9]), f64([0.5, 0.3, 0.2]).log(), f64([0.3, 0.3, 0.4]).log()
NAMES = [(place, symbol) for place in kl_estimators.PLACEMENTS for symbol in kl_estimators.ESTIMATORS]


def logits(size: int = 3):
    return st.lists(st.floats(-1.5, 1.5), min_size=size, max_size=size).map(f64)


# ---------------------------------------------------------------- every gradient is a weight on ∇log π

# With Δ = log π_ref − log π: what multiplies ∇log π when that placement of that estimator is differentiated on one
# sample. Worked on paper from d k1 = 1, d k2 = −Δ, d k3 = 1 − e^Δ (by log π) and the product rule.
AS_LOSS = {"k1": lambda d: 1 + 0 * d, "k2": lambda d: -d, "k3": lambda d: 1 - d.exp()}
IN_REWARD = {"k1": lambda d: -d, "k2": lambda d: d**2 / 2, "k3": lambda d: d.exp() - d - 1}
WEIGHTS = {
    "loss": lambda s, d, rho: AS_LOSS[s](d),
    "loss, ρ detached": lambda s, d, rho: rho * AS_LOSS[s](d),
    "loss, ρ in graph": lambda s, d, rho: rho * (AS_LOSS[s](d) + IN_REWARD[s](d)),
    "reward": lambda s, d, rho: IN_REWARD[s](d),
    "reward, with ρ": lambda s, d, rho: rho * IN_REWARD[s](d),
}


def by_weight(weights: Tensor, policy: Tensor, sampler: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of w(a)·(onehot(a) − p) over the actions of `sampler`."""
    rows = weights[:, None] * (torch.eye(len(policy), dtype=torch.float64) - policy)
    mean = (sampler[:, None] * rows).sum(0)
    covariance = sum(s * torch.outer(row - mean, row - mean) for s, row in zip(sampler, rows, strict=True))
    return mean, covariance


@pytest.mark.parametrize(("place", "symbol"), NAMES)
@given(start=logits(), reference=logits(), old=logits())
def test_each_gradient_is_its_weight_on_the_score_in_mean_and_covariance(place, symbol, start, reference, old):
    placement, estimator = kl_estimators.PLACEMENTS[place], kl_estimators.ESTIMATORS[symbol]
    moments = kl_estimators.gradient_moments(placement, estimator, start, reference, logits_old=old)
    p, sampler = start.softmax(-1), old.softmax(-1)
    delta = reference.log_softmax(-1) - p.log()
    mean, covariance = by_weight(WEIGHTS[place](symbol, delta, p / sampler), p, sampler)
    close(moments.mean, mean, rtol=1e-9, atol=1e-12)
    close(moments.covariance, covariance, rtol=1e-9, atol=1e-12)


def exact_gradient(reference_first: bool) -> Tensor:
    """∇KL on the logits by central differences of the divergence itself."""

    def divergence(z: Tensor) -> Tensor:
        p, q = z.softmax(-1), REFERENCE.exp()
        return kl.kl_divergence(q, p) if reference_first else kl.kl_divergence(p, q)

    return central_gradient(divergence, LOGITS)


def test_the_gradients_of_the_two_divergences_are_those_of_the_worked_case():
    close(exact_gradient(False), [-0.23474, -0.07766, 0.31240], rtol=0, atol=5e-6)
    close(exact_gradient(True), [-0.28144, -0.00498, 0.28641], rtol=0, atol=6e-6)


RIGHT = {("loss, ρ in graph", "k1"), ("loss, ρ in graph", "k3"), ("reward, with ρ", "k1"), ("loss, ρ detached", "k2")}


def test_the_table_has_every_placement_and_says_of_each_what_it_is():
    table = kl_estimators.gradient_table(LOGITS, REFERENCE, logits_old=OLD)
    assert [(row.on_policy, row.placement, row.estimator) for row in table] == [
        (on, *name) for on in (True, False) for name in NAMES
    ]
    known = {
        "∇KL(π‖ref)": exact_gradient(False),
        "∇KL(ref‖π)": exact_gradient(True),
        "0": torch.zeros(3, dtype=torch.float64),
    }
    for row in table:
        for name, gradient in known.items():
            same = (row.gradient - gradient).abs().max() < 1e-8
            assert same == (row.equals == name), (row.placement, row.estimator, row.on_policy)
    right = {(row.on_policy, row.placement, row.estimator) for row in table if row.equals == "∇KL(π‖ref)"}
    assert right == {(on, *name) for on in (True, False) for name in RIGHT} | {
        (True, "loss", "k2"),
        (True, "reward", "k1"),
    }
    forward = {(row.on_policy, row.placement, row.estimator) for row in table if row.equals == "∇KL(ref‖π)"}
    assert forward == {(True, "loss", "k3"), (True, "loss, ρ detached", "k3"), (False, "loss, ρ detached", "k3")}
    nothing = {(row.on_policy, row.placement, row.estimator) for row in table if row.equals == "0"}
    assert nothing == {(True, "loss", "k1"), (True, "loss, ρ detached", "k1"), (False, "loss, ρ detached", "k1")}


def test_off_policy_k1_as_a_loss_points_the_wrong_way():
    table = kl_estimators.gradient_table(LOGITS, REFERENCE, logits_old=OLD)
    cosines = {(row.on_policy, row.placement, row.estimator): row.cosine for row in table}
    truth, wrong = exact_gradient(False), OLD.exp() - LOGITS.softmax(-1)
    expected = truth @ wrong / (truth.norm() * wrong.norm())
    assert expected < -0.9
    assert cosines[False, "loss", "k1"] == pytest.approx(expected.item(), rel=1e-6)
    assert math.isnan(cosines[True, "loss", "k1"])


def test_a_cost_from_the_snapshot_has_the_gradient_of_the_difference_of_two_divergences():
    moments = kl_estimators.gradient_moments(
        kl_estimators.in_snapshot_reward, kl.kl_k1, LOGITS, REFERENCE, logits_old=OLD
    )
    to_old = central_gradient(lambda z: kl.kl_divergence(z.softmax(-1), OLD.exp()), LOGITS)
    close(moments.mean, exact_gradient(False) - to_old, rtol=0, atol=1e-9)
    fresh = kl_estimators.gradient_moments(kl_estimators.in_snapshot_reward, kl.kl_k1, LOGITS, REFERENCE)
    close(fresh.mean, exact_gradient(False), rtol=0, atol=1e-9)


def test_three_right_placements_are_one_estimator_on_policy_and_k1_in_the_graph_is_a_noisier_one():
    def variance(place: str, symbol: str) -> float:
        estimator = kl_estimators.ESTIMATORS[symbol]
        return kl_estimators.gradient_moments(
            kl_estimators.PLACEMENTS[place], estimator, LOGITS, REFERENCE
        ).covariance.trace()

    same = [variance("loss", "k2"), variance("reward", "k1"), variance("loss, ρ in graph", "k3")]
    close(torch.stack(same), same[0].expand(3))
    assert variance("loss, ρ in graph", "k1") > 3 * same[0]


# ---------------------------------------------------------------- values


def test_mean_and_variance_by_hand():
    moments = kl_estimators.value_moments([1.0, 3.0], [0.0, math.log(3)])
    assert moments == kl_estimators.ValueMoments(mean=pytest.approx(2.5), variance=pytest.approx(0.75))


def test_the_estimators_of_the_worked_case_in_value_and_spread():
    p, q = f64([0.7, 0.2, 0.1]), f64([0.2, 0.3, 0.5])
    for estimator, mean in ((kl.kl_k1, 0.634897), (kl.kl_k3, 0.634897)):
        assert kl_estimators.value_moments(estimator(p.log(), q.log()), p.log()).mean == pytest.approx(mean, abs=5e-7)
    ratios = [0.2 / 0.7, 0.3 / 0.2, 0.5 / 0.1]
    squares = sum(w * (r - math.log(r) - 1) ** 2 for w, r in zip((0.7, 0.2, 0.1), ratios, strict=True))
    spread = kl_estimators.value_moments(kl.kl_k3(p.log(), q.log()), p.log()).variance
    divergence = sum(w * -math.log(r) for w, r in zip((0.7, 0.2, 0.1), ratios, strict=True))
    assert spread == pytest.approx(squares - divergence**2, rel=RTOL)


# ---------------------------------------------------------------- training on the KL alone


def descend(symbol: str, start: Tensor, **changes) -> Tensor:
    options = {"runs": 10, "steps": 300, "samples": 8, "lr": 0.05, "generator": torch.Generator().manual_seed(0)}
    estimator = kl_estimators.ESTIMATORS[symbol]
    return kl_estimators.descend(kl_estimators.as_loss, estimator, start, REFERENCE, **(options | changes))


@pytest.mark.parametrize("symbol", ["k2", "k3"])
def test_k2_and_k3_stay_at_the_reference_and_come_back_to_it(symbol):
    assert not descend(symbol, REFERENCE).any()
    away = descend(symbol, LOGITS)
    assert away[:, 0].min() > 0.2
    assert away[:, -1].max() < 1e-6


def test_k1_as_a_loss_drifts_from_the_reference_and_does_not_come_back():
    assert descend("k1", REFERENCE)[:, -1].median() > 0.02
    assert descend("k1", LOGITS)[:, -1].median() > 0.1


def test_k1_comes_back_where_its_ratio_is_differentiated_or_where_it_is_a_cost_in_the_reward():
    for placement in (kl_estimators.as_loss_ratio_in_graph, kl_estimators.in_reward):
        history = kl_estimators.descend(
            placement,
            kl.kl_k1,
            LOGITS,
            REFERENCE,
            runs=10,
            steps=200,
            samples=64,
            lr=0.05,
            generator=torch.Generator().manual_seed(0),
        )
        # The gradient is right and its noise is not small, least of all in the graph: the KL falls to a tenth.
        assert history[:, -1].median() < 0.1 * history[:, 0].median()


def test_a_run_begins_at_its_start_and_runs_differ_only_in_their_samples():
    history = descend("k3", LOGITS, steps=2)
    assert history.shape == (10, 3)
    close(history[:, 0], kl.kl_divergence(LOGITS.softmax(-1), REFERENCE.exp()).expand(10))
    assert history[:, 1].unique().numel() > 1
    torch.testing.assert_close(descend("k3", LOGITS, steps=2), history, rtol=0, atol=0)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: kl_estimators.gradient_table([0.0], [0.0, 1.0], logits_old=[0.0]), "logits and logits_ref and"),
        (lambda: kl_estimators.gradient_table([[0.0]], [[0.0]], logits_old=[[0.0]]), r"logits must be \(K,\)"),
        (lambda: kl_estimators.gradient_table([math.nan], [0.0], logits_old=[0.0]), "logits must be finite"),
        (lambda: kl_estimators.value_moments([1.0], [0.0, 1.0]), "must list the same actions"),
        (lambda: descend("k1", LOGITS, runs=0), "runs must be a whole number of at least 1"),
        (lambda: descend("k1", LOGITS, samples=0), "samples must be a whole number of at least 1"),
        (lambda: descend("k1", LOGITS, steps=0), "steps must be a whole number of at least 1"),
        (lambda: descend("k1", LOGITS, lr=0.0), "lr must be greater than 0"),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_gradients_are_found_where_they_are_switched_off():
    with torch.no_grad():
        assert len(kl_estimators.gradient_table(LOGITS, REFERENCE, logits_old=OLD)) == 30
        assert descend("k2", LOGITS, steps=1).shape == (10, 2)
