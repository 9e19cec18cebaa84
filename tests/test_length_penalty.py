"""The soft overlong penalty: the paper's three pieces, TRL's reward function, and the task that takes it off."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labsrc import length_penalty, toylm
from labsrc.toylm.overlong import SoftOverlong
from labsrc.trl_bridge import library


def test_the_three_pieces_by_hand():
    found = length_penalty.soft_overlong_penalty([0, 6, 8, 10, 11], max_length=10, cache=4)
    assert found.tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]


@given(st.integers(1, 40), st.data())
def test_it_is_trls(max_length, data):
    pytest.importorskip("trl", reason=f"TRL is not installed: pip install trl=={library.VERSION}")
    library.load()
    from trl.rewards import get_soft_overlong_punishment

    cache = data.draw(st.integers(1, max_length))
    lengths = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=5))
    theirs = get_soft_overlong_punishment(max_length, cache)(completion_ids=[[0] * length for length in lengths])
    ours = length_penalty.soft_overlong_penalty(lengths, max_length=max_length, cache=cache)
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "lengths, options, message",
    [
        ([-1], {"max_length": 5, "cache": 2}, "lengths must be at least 0; got -1"),
        ([1], {"max_length": 5, "cache": 0}, "cache must be a whole number of at least 1; got 0"),
        ([1], {"max_length": 5, "cache": 6}, "cache must be at most max_length = 5; got 6"),
        ([1], {"max_length": 0, "cache": 1}, "max_length must be a whole number of at least 1; got 0"),
    ],
)
def test_bad_input_is_refused(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        length_penalty.soft_overlong_penalty(lengths, **options)


def test_the_task_takes_it_off_and_keeps_what_was_intended():
    plain, priced = toylm.LengthBonus(), SoftOverlong(cache=2)
    tokens = torch.tensor([[6, 1, 0, 0, 0, 0, 0, 0], [6, 1, 1, 1, 1, 1, 1, 0]])
    mask = torch.tensor([[True] * 3 + [False] * 5, [True] * 8])
    prompts = plain.prompt_tokens.expand(2, -1)
    assert (plain.rewards(prompts, tokens, mask) - priced.rewards(prompts, tokens, mask)).tolist() == [0.0, 1.0]
    assert priced.intended_rewards(prompts, tokens, mask).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="cache must be at most max_length = 8; got 9"):
        SoftOverlong(cache=9)


def test_a_policy_that_is_charged_for_length_ends_its_answers_earlier():
    """The scorer that pays for every token, alone and with the price of running into the limit."""
    lengths = {}
    for task in (toylm.LengthBonus(), SoftOverlong()):
        settings = toylm.GrpoSettings(task=task, steps=150, optimizer="adam", lr=0.01, beta=0.0, inner_updates=1)
        trainer = toylm.train(settings, keep_groups=False)
        lengths[task.name] = trainer.monitors[-1]["length"]
    assert lengths["soft_overlong"] < lengths["length_bonus"] - 1
