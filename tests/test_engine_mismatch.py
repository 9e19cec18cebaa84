"""labsrc.engine_mismatch: what the corrections keep, by enumeration, and what they refuse; TRL is asked elsewhere."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from labsrc import engine_mismatch, exact

MASK = tensor([[True, True, False]])


def weights(ratios, **options):
    """The correction of one sequence with these token ratios."""
    logp = tensor([ratios], dtype=torch.float64).log()
    return engine_mismatch.correction(logp, torch.zeros_like(logp), torch.ones_like(logp).bool(), **options)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [[0.5, 2.0, 1.5]]),
        ({"mode": "mask"}, [[0.5, 0.0, 1.5]]),
        ({"low": 0.8, "high": None}, [[0.8, 4.0, 1.5]]),
        ({"mode": "mask", "low": 0.8, "high": 5.0}, [[0.0, 4.0, 1.5]]),
        ({"level": "sequence"}, [[2.0]]),
        ({"level": "sequence", "high": 3.5}, [[3.0]]),
        ({"level": "sequence", "mode": "mask"}, [[0.0]]),
    ],
)
def test_a_case_by_hand(options, wanted):
    torch.testing.assert_close(weights([0.5, 4.0, 1.5], **options), tensor(wanted, dtype=torch.float64))


def test_padding_cannot_leak_and_weighs_one():
    logp = tensor([[-1.0, -2.0, math.nan]], dtype=torch.float64)
    engine = tensor([[-1.1, -2.0, math.inf]], dtype=torch.float64)
    found = engine_mismatch.correction(logp, engine, MASK)
    torch.testing.assert_close(found, tensor([[math.exp(0.1), 1.0, 1.0]], dtype=torch.float64))


def test_a_correction_is_a_constant():
    logp = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    found = engine_mismatch.correction(logp, torch.zeros(1, 2), torch.ones(1, 2))
    assert not found.requires_grad


@given(st.integers(0, 10_000))
def test_the_uncapped_sequence_weight_turns_the_engine_s_expectation_into_the_trainer_s(seed):
    generator = torch.Generator().manual_seed(seed)
    table, engine = ([torch.randn(*[3] * t, dtype=torch.float64, generator=generator) for t in (1, 2)] for _ in "pe")
    values = torch.randn(9, dtype=torch.float64, generator=generator)
    logp, logp_engine = exact.sequence_token_logp(table), exact.sequence_token_logp(engine)
    ratio = engine_mismatch.correction(logp, logp_engine, torch.ones_like(logp), level="sequence", high=None)
    found = (logp_engine.sum(-1).exp() * ratio[:, 0] * values).sum()
    # Nine products and their sum, in float64.
    torch.testing.assert_close(found, exact.sequence_expected_value(table, values), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"level": "token ratio"}, "level must be one of"),
        ({"mode": "clip"}, "mode must be one of"),
        ({"high": 0.0}, "high must be"),
        ({"low": -1.0}, "low must be"),
        ({"low": 2.0, "high": 2.0}, "low must be less than high = 2.0; got 2.0"),
        ({"logp": tensor([[math.nan, 0.0, 0.0]])}, "logp must be finite"),
        ({"logp_engine": tensor([[-1000.0, 0.0, 0.0]])}, "logp - logp_engine"),
        ({"logp_engine": torch.zeros(1, 2)}, "logp_engine"),
        ({"mask": tensor([[False, False, False]])}, "mask must keep at least one token"),
    ],
)
def test_refusals(changed, message):
    call = {"logp": torch.zeros(1, 3), "logp_engine": torch.zeros(1, 3), "mask": MASK} | changed
    with pytest.raises(ValueError, match=message):
        engine_mismatch.correction(call.pop("logp"), call.pop("logp_engine"), call.pop("mask"), **call)
