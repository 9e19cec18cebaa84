import pytest
import torch

from labsrc.toylm.sampling import valid_tokens
from labsrc.toylm.tasks import Addition, FirstToken, LengthBonus


def test_first_token_rewards_the_first_token_only():
    task = FirstToken()
    completions = torch.tensor([[6, 0], [0, 6], [6, 6], [5, 5]])
    assert task.rewards(None, completions, None).tolist() == [1, 0, 1, 0]


def test_addition_accepts_exactly_the_digits_of_the_sum_and_eos():
    task = Addition()
    prompts = task.prompt_tokens
    assert prompts.shape == (100, 4)
    for prompt in prompts[::7]:
        a, b = int(prompt[0]), int(prompt[2])
        right = [int(digit) for digit in str(a + b)] + [12]
        for completion in (right, right[:-1], [*right[:-1], 0, 12], [(right[0] + 1) % 10, *right[1:]], [12]):
            padded = torch.tensor([(completion + [12] * 3)[:3]])
            got = task.rewards(prompt[None], padded, valid_tokens(padded, 12)).item()
            # An answer of two digits cut off before its EOS is padded with one here, so it is the right one.
            assert got == float([*completion, 12][: len(right)] == right and len(completion) <= len(right))


def test_what_stands_after_the_eos_earns_nothing_and_costs_nothing():
    task = Addition()
    prompt = torch.tensor([[2, 10, 3, 11]])
    for padding in range(13):
        completion = torch.tensor([[5, 12, padding]])
        assert task.rewards(prompt, completion, valid_tokens(completion, 12)).item() == 1
    unended = torch.tensor([[5, 5, 12]])
    assert task.rewards(prompt, unended, valid_tokens(unended, 12)).item() == 0


def test_the_answers_earn_the_reward():
    task = Addition(largest=4)
    prompts = task.prompt_tokens
    answers = task.answers(prompts)
    assert len(prompts) == 25
    assert task.rewards(prompts, answers, valid_tokens(answers, 12)).sum() == 25


def test_length_bonus_pays_for_tokens_that_were_not_asked_for():
    task = LengthBonus(bonus=0.2, max_new_tokens=4)
    short, long, wrong = [6, 0, 0, 0], [6, 1, 1, 1], [5, 1, 1, 1]
    completions = torch.tensor([short, long, wrong])
    mask = valid_tokens(completions, 0)
    torch.testing.assert_close(task.rewards(None, completions, mask), torch.tensor([1.4, 1.8, 0.8]).double())
    assert task.intended_rewards(None, completions, mask).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FirstToken(max_new_tokens=0), "max_new_tokens must be a whole number of at least 1; got 0"),
        (lambda: FirstToken(target=8), "target must hold token ids below the vocabulary of 8; got 8"),
        (lambda: FirstToken(prompts=((1, 3), (2,))), "prompts must be at least one list of ids, all of one length"),
        (lambda: FirstToken(prompts=()), "prompts must be at least one"),
        (lambda: FirstToken(prompts=((9,),)), "prompts must hold token ids below"),
        (lambda: FirstToken(eos_token=8), "eos_token must hold token ids below"),
        (lambda: LengthBonus(bonus=float("inf")), "bonus must be a finite number"),
        (lambda: Addition(largest=10), "largest must be a single digit, at most 9; got 10"),
    ],
)
def test_a_task_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
