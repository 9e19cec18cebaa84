import pytest
import torch
from tolerances import RTOL

from labsrc.toylm import sampling
from labsrc.toylm.model import Decoder

PROMPTS = torch.tensor([[1, 3], [2, 0]])


def decoder(vocabulary=5, context=6, seed=0):
    return Decoder(vocabulary, context, width=8, generator=torch.Generator().manual_seed(seed))


def uniforms(rows, length, seed=1):
    return sampling.uniform_table(rows, length, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_log_probs_are_those_of_the_distribution_that_sampled(temperature):
    policy = decoder()
    drawn = sampling.sample(policy, PROMPTS, uniforms(12, 4), temperature=temperature)
    again = sampling.completion_logp(policy, PROMPTS, drawn.tokens, temperature=temperature)
    torch.testing.assert_close(drawn.logp, again.detach(), rtol=RTOL, atol=1e-14)
    # And by hand, from the logits of one completion read alone.
    row = torch.cat([PROMPTS[1], drawn.tokens[7]])
    logits = policy(row[None])[0][0] / temperature
    by_hand = torch.stack([logits[1 + t].softmax(-1)[row[2 + t]].log() for t in range(4)])
    torch.testing.assert_close(drawn.logp[7], by_hand.detach(), rtol=1e-9, atol=0)


def test_frequencies_follow_the_tempered_softmax():
    policy, draws = decoder(), 20_000
    drawn = sampling.sample(policy, PROMPTS[:1], uniforms(draws, 1), temperature=0.7)
    p = (policy(PROMPTS[:1])[0][0, -1] / 0.7).softmax(-1)
    frequency = torch.bincount(drawn.tokens[:, 0], minlength=5) / draws
    assert ((frequency - p).abs() <= 4 * (p * (1 - p) / draws).sqrt()).all()


def test_one_at_a_time_draws_the_same_completions_as_the_batch():
    policy, table = decoder(), uniforms(8, 4)
    together = sampling.sample(policy, PROMPTS, table, eos_token=2)
    for row in range(8):
        alone = sampling.sample(policy, PROMPTS[row // 4 :][:1], table[row : row + 1], eos_token=2)
        assert torch.equal(alone.tokens[0], together.tokens[row])
        torch.testing.assert_close(alone.logp[0], together.logp[row], rtol=1e-9, atol=1e-12)


def test_the_mask_keeps_the_first_eos_and_nothing_after_it():
    drawn = sampling.sample(decoder(), PROMPTS, uniforms(400, 4), eos_token=2)
    lengths = drawn.mask.sum(1)
    assert set(lengths.tolist()) == {1, 2, 3, 4}
    for tokens, length in zip(drawn.tokens.tolist(), lengths.tolist(), strict=True):
        assert 2 not in tokens[: length - 1]
        assert length == 4 or tokens[length - 1] == 2
        assert all(token == 2 for token in tokens[length:])


def test_without_an_eos_every_token_counts():
    assert sampling.sample(decoder(), PROMPTS, uniforms(40, 4)).mask.all()


def test_the_log_prob_of_the_eos_reaches_the_weights():
    policy = decoder()
    completions = torch.tensor([[2, 2, 2]])  # EOS at once, then padding
    logp = sampling.completion_logp(policy, PROMPTS[:1], completions)
    mask = sampling.valid_tokens(completions, 2)
    logp[mask].sum().backward()
    gradient = policy.head.weight.grad
    assert gradient[2].abs().sum() > 0  # the row of the EOS token
    assert mask.tolist() == [[True, False, False]]


def test_padding_does_not_reach_the_tokens_that_count():
    policy = decoder()
    one, two = torch.tensor([[4, 2, 2, 2]]), torch.tensor([[4, 2, 0, 3]])
    logp_one, logp_two = (sampling.completion_logp(policy, PROMPTS[:1], c) for c in (one, two))
    assert torch.equal(logp_one[:, :2], logp_two[:, :2])


def test_reading_each_prompt_once_changes_neither_value_nor_gradient(monkeypatch):
    policy = decoder()
    completions = sampling.sample(policy, PROMPTS, uniforms(12, 4)).tokens

    def value_and_gradient(threshold):
        monkeypatch.setattr(sampling, "SHARED_PROMPT_TOKENS", threshold)
        policy.zero_grad()
        logp = sampling.completion_logp(policy, PROMPTS, completions)
        (logp * torch.arange(48.0).view(12, 4)).sum().backward()
        return [logp.detach(), *(weight.grad.clone() for weight in policy.parameters())]

    for one, two in zip(value_and_gradient(0), value_and_gradient(10**9), strict=True):
        torch.testing.assert_close(one, two, rtol=RTOL, atol=1e-12)


def test_entropy_is_that_of_the_sampling_distribution():
    policy = decoder()
    drawn = sampling.sample(policy, PROMPTS[:1], uniforms(3, 1), temperature=2.0)
    p = (policy(PROMPTS[:1])[0][0, -1] / 2).softmax(-1)
    torch.testing.assert_close(drawn.entropy[0, 0], torch.special.entr(p).sum().detach(), rtol=RTOL, atol=0)


def test_greedy_takes_the_most_probable_token_each_time():
    policy = decoder()
    drawn = sampling.greedy(policy, PROMPTS, max_new_tokens=3)
    for row in range(2):
        tokens = PROMPTS[row]
        for _ in range(3):
            tokens = torch.cat([tokens, policy(tokens[None])[0][0, -1].argmax().view(1)])
        assert torch.equal(tokens[2:], drawn.tokens[row])


def test_a_symbol_of_probability_zero_is_never_drawn_even_at_the_edges():
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64).expand(4, 5)
    u = torch.tensor([0.0, 0.49999, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sampling.inverse_cdf(p, u).tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be"):
        sampling.sample(decoder(), PROMPTS, uniforms(4, 2), temperature=temperature)


def test_uniforms_that_do_not_fill_whole_groups_are_refused():
    with pytest.raises(ValueError, match=r"uniforms must be \(…, P·G, T\)"):
        sampling.sample(decoder(), PROMPTS, uniforms(3, 2))
    with pytest.raises(ValueError, match="whole groups"):
        sampling.completion_logp(decoder(), PROMPTS, torch.zeros(3, 2, dtype=torch.long))
