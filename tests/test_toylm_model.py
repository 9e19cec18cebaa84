import math

import pytest
import torch
from tolerances import RTOL

from labsrc.toylm import model, sampling


def decoder(seed=0, **options):
    options = {"vocabulary": 5, "context": 6, "width": 8, "layers": 2} | options
    return model.Decoder(**options, generator=torch.Generator().manual_seed(seed))


TOKENS = torch.tensor([[1, 3, 0, 2, 4, 1], [2, 2, 1, 0, 3, 3]])


def test_no_position_sees_the_future():
    policy = decoder()
    before, _ = policy(TOKENS)
    for position in range(1, 6):
        changed = TOKENS.clone()
        changed[:, position:] = (changed[:, position:] + 1) % 5
        after, _ = policy(changed)
        assert torch.equal(before[:, :position], after[:, :position])
        assert not torch.allclose(before[:, position], after[:, position])


def test_every_position_sees_the_whole_past():
    policy = decoder()
    embedded = policy.tokens(TOKENS).detach().requires_grad_()
    policy.tokens.forward = lambda _: embedded
    policy(TOKENS)[0][:, -1].sum().backward()
    assert (embedded.grad.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("split", [1, 3, 5])
def test_the_cache_gives_the_outputs_of_the_whole_input(split):
    policy = decoder()
    whole, _ = policy(TOKENS)
    first, cache = policy(TOKENS[:, :split])
    rest, _ = policy(TOKENS[:, split:], cache)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=RTOL, atol=1e-14)


def test_one_attention_head_computed_by_hand_agrees():
    policy = decoder(layers=1, heads=1, width=4)
    with torch.no_grad():
        logits, _ = policy(TOKENS[:1])
        weight = dict(policy.named_parameters())
        x = weight["tokens.weight"][TOKENS[0]] + weight["positions.weight"]

        def norm(row):
            return (row - row.mean()) / (row.var(correction=0) + 1e-5).sqrt()

        rows = []
        projections = weight["blocks.0.query_key_value"].split(4)
        for t in range(6):
            query = projections[0] @ norm(x[t])
            keys = [projections[1] @ norm(x[s]) for s in range(t + 1)]
            values = [projections[2] @ norm(x[s]) for s in range(t + 1)]
            scores = [math.exp(float(query @ key) / 2) for key in keys]
            mixed = sum(score / sum(scores) * value for score, value in zip(scores, values, strict=True))
            h = x[t] + weight["blocks.0.attention_out"] @ mixed
            up = weight["blocks.0.up"] @ norm(h) + weight["blocks.0.up_bias"]
            h = h + weight["blocks.0.down"] @ up.clamp(min=0) + weight["blocks.0.down_bias"]
            rows.append(weight["head.weight"] @ norm(h))
        torch.testing.assert_close(logits[0], torch.stack(rows), rtol=1e-9, atol=1e-12)


def test_the_same_generator_seed_gives_the_same_weights_and_the_global_seed_does_not_matter():
    torch.manual_seed(1)
    one = decoder(seed=3).state_dict()
    torch.manual_seed(2)
    two, three = decoder(seed=3).state_dict(), decoder(seed=4).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["head.weight"], three["head.weight"])


def test_a_frozen_copy_stays_where_it_is():
    policy = decoder()
    reference = model.frozen_copy(policy)
    assert model.parameter_count(reference) == 0 < model.parameter_count(policy)
    with torch.no_grad():
        policy.head.weight.zero_()
    assert reference.head.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 9}, "width must be a multiple of heads = 2; got 9"),
        ({"layers": 0}, "layers must be a whole number of at least 1; got 0"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"vocabulary": 1}, "vocabulary must be a whole number of at least 2; got 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        decoder(**options)


def test_a_critic_has_one_output():
    assert sampling.completion_outputs(decoder(outputs=1), TOKENS[:, :2], TOKENS[:, 2:]).shape == (2, 4, 1)
