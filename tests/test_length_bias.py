"""The push of an aggregation on lengths that earn nothing: closed form, a sum's exact zero, sampling."""

import functools

import pytest
import torch

from labsrc import aggregation, length_bias

LONG = 200  # at stop ≥ 0.2 what is cut off weighs less than 1e-19
STOPS = (0.2, 0.5, 0.9)


@pytest.mark.parametrize("stop", STOPS)
def test_lengths_are_geometric_and_add_up_to_one(stop):
    found = length_bias.length_probabilities(stop, longest=LONG)
    lengths = torch.arange(1, LONG + 1, dtype=torch.float64)
    assert abs(found.sum().item() - 1) < 1e-14
    assert abs((found * lengths).sum().item() - 1 / stop) < 1e-10


def test_scores_are_the_derivatives_of_the_log_probabilities():
    """Central differences of log P(L) on the logit of stopping, the forced end included."""
    logit, step = torch.tensor(0.3, dtype=torch.float64), 1e-6
    above, below = (
        length_bias.length_probabilities(torch.sigmoid(logit + side).item(), longest=6).log() for side in (step, -step)
    )
    scores, mask = length_bias.token_scores(torch.sigmoid(logit).item(), longest=6)
    # Six digits: the differences lose as many to rounding.
    torch.testing.assert_close((scores * mask).sum(-1), (above - below) / (2 * step), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("stop", STOPS)
def test_a_mean_per_sequence_pushes_by_the_closed_form(stop):
    found = length_bias.expected_push(aggregation.mean_of_sequence_means, [1.0], stop=stop, longest=LONG)
    assert abs(found.item() - length_bias.sequence_mean_push(stop)) < 1e-12
    assert found.item() > 0


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    "summed", [aggregation.mean_of_sequence_sums, functools.partial(aggregation.sum_over_fixed_length, max_length=9)]
)
def test_a_constant_weight_per_token_pushes_nothing(stop, summed):
    found = length_bias.expected_push(summed, [1.0, -1.0], stop=stop, longest=9)
    assert found.abs().max() < 1e-15


def test_right_and_wrong_answers_are_pushed_apart():
    mean = length_bias.expected_push(aggregation.mean_of_sequence_means, [1.0, -1.0], stop=0.5, longest=20)
    expected = length_bias.sequence_mean_push(0.5) / 2
    torch.testing.assert_close(mean, torch.tensor([expected, -expected], dtype=torch.float64), rtol=0, atol=1e-5)
    tokens = length_bias.expected_push(aggregation.mean_over_tokens, [1.0, -1.0], stop=0.5, longest=20)
    assert 0 < tokens[0] < mean[0] and abs(tokens.sum()) < 1e-15


def test_the_enumeration_agrees_with_a_sample():
    generator = torch.Generator().manual_seed(0)
    probabilities = length_bias.length_probabilities(0.4, longest=12)
    scores, mask = length_bias.token_scores(0.4, longest=12)
    rows = torch.multinomial(probabilities, 3 * 4000, replacement=True, generator=generator).view(-1, 3)
    pushes = []
    for batch in rows:
        values = scores[batch] * torch.tensor([[1.0], [-0.5], [-0.5]])
        pushes.append(aggregation.mean_over_tokens(values, mask[batch]))
    sampled = torch.stack(pushes)
    exact = length_bias.expected_push(aggregation.mean_over_tokens, [1.0, -0.5, -0.5], stop=0.4, longest=12).sum()
    # Four standard errors of the mean.
    assert abs(sampled.mean() - exact) < 4 * sampled.std() / len(sampled) ** 0.5


@pytest.mark.parametrize("stop", [0.0, 1.0, -0.1, float("nan")])
def test_a_stop_outside_the_open_interval_is_refused(stop):
    for call in (
        length_bias.sequence_mean_push,
        lambda stop: length_bias.expected_push(aggregation.mean_over_tokens, [1.0], stop=stop, longest=3),
    ):
        with pytest.raises(ValueError, match="stop must"):
            call(stop)
    with pytest.raises(ValueError, match="longest must be a whole number of at least 1; got 0"):
        length_bias.length_probabilities(0.5, longest=0)
