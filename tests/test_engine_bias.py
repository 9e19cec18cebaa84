"""Sampling from an engine: what is exactly unbiased is so, and what is not misses what theory says it misses."""

from functools import partial

import pytest
import torch

from labsrc import engine_bias, engine_mismatch, exact

WHOLE = partial(engine_mismatch.correction, level="sequence", high=None)
TOKEN = partial(engine_mismatch.correction, level="token", high=None)


def case(tokens, *, seed=0, gap=0.5, vocabulary=3):
    generator = torch.Generator().manual_seed(seed)

    def noise(step):
        return torch.randn((vocabulary,) * (step + 1), generator=generator, dtype=torch.float64)

    table = [noise(step) for step in range(tokens)]
    engine = [logits + gap * noise(step) for step, logits in enumerate(table)]
    return table, engine, torch.randn(vocabulary**tokens, generator=generator, dtype=torch.float64)


def bias(table, engine, values, weights):
    return engine_bias.gradient_moments(table, engine, values, weights).mean - engine_bias.true_gradient(table, values)


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_the_ratio_of_the_whole_sequence_is_unbiased(tokens):
    assert bias(*case(tokens), WHOLE).abs().max() < 1e-14


def test_token_ratios_are_unbiased_for_one_token_and_biased_for_more():
    assert bias(*case(1), TOKEN).abs().max() < 1e-15
    assert bias(*case(2), TOKEN).abs().max() > 1e-3


@pytest.mark.parametrize("weights", [engine_bias.uncorrected, TOKEN, WHOLE])
def test_an_engine_that_is_the_trainer_needs_no_correction(weights):
    table, _, values = case(2)
    same = engine_bias.gradient_moments(table, table, values, weights)
    plain = engine_bias.gradient_moments(table, table, values, engine_bias.uncorrected)
    torch.testing.assert_close(same.mean, engine_bias.true_gradient(table, values), rtol=0, atol=1e-15)
    torch.testing.assert_close(same.covariance, plain.covariance, rtol=0, atol=1e-15)


def test_a_bound_trades_variance_for_bias():
    table, engine, values = case(2, gap=1.0)
    free = engine_bias.gradient_moments(table, engine, values, WHOLE)
    capped = partial(engine_mismatch.correction, level="sequence", high=1.5)
    bounded = engine_bias.gradient_moments(table, engine, values, capped)
    assert bounded.variance < free.variance
    assert bias(table, engine, values, capped).norm() > 1e-3


def test_the_uncorrected_mean_is_a_sum_over_the_engines_samples():
    """Σ_y μ(y)·f(y)·∇log π(y), the gradient found by central differences of Σ_y μ(y)·f(y)·log π(y)."""
    table, engine, values = case(1)
    mu = torch.softmax(engine[0], -1)
    step, found = 1e-6, []
    for action in range(3):
        side = torch.zeros(3, dtype=torch.float64).index_fill(0, torch.tensor([action]), step)
        up, down = ((mu * values * torch.log_softmax(table[0] + sign * side, -1)).sum() for sign in (1, -1))
        found.append((up - down) / (2 * step))
    mean = engine_bias.gradient_moments(table, engine, values, engine_bias.uncorrected).mean
    # Six digits: the differences lose as many to rounding.
    torch.testing.assert_close(mean, torch.stack(found), rtol=1e-8, atol=1e-8)


def test_tables_and_values_that_do_not_fit_are_refused():
    table, engine, values = case(2)
    with pytest.raises(ValueError, match="table and table_engine must have the same shape"):
        engine_bias.gradient_moments(table, engine[:1], values, WHOLE)
    with pytest.raises(ValueError, match=r"values must be \(9,\), one a sequence; got shape \(3,\)"):
        engine_bias.gradient_moments(table, engine, values[:3], WHOLE)


def test_lengths_of_the_flat_gradient():
    table, engine, values = case(2)
    assert len(engine_bias.gradient_moments(table, engine, values, TOKEN).mean) == 3 + 9
    assert isinstance(engine_bias.gradient_moments(table, engine, values, TOKEN), exact.GradientMoments)
