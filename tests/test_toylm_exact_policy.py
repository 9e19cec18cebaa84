import copy
import itertools
import math

import pytest
import torch
from tolerances import RTOL

from labsrc import toylm
from labsrc.toylm import exact_policy, start

ENDING = toylm.FirstToken(eos_token=1, max_new_tokens=3, vocabulary=4, target=2, prompts=((1, 3), (2, 0)))
FIXED = toylm.FirstToken(max_new_tokens=2, vocabulary=4, target=2, prompts=((1, 3),))


def decoder(task, seed=0):
    return start.fresh_model(toylm.ModelSettings(width=8), task, seed=seed)


def completions_by_hand(task):
    """Walk the tree of tokens; stop at the EOS."""
    open_ones, done = [()], []
    for _ in range(task.max_new_tokens):
        longer = [(*row, token) for row in open_ones for token in range(task.vocabulary)]
        done += [row for row in longer if row[-1] == task.eos_token]
        open_ones = [row for row in longer if row[-1] != task.eos_token]
    return done + open_ones


def probability_by_hand(policy, prompt, completion, temperature=1.0):
    tokens, probability = list(prompt), 1.0
    for token in completion:
        logits = policy(torch.tensor([tokens]))[0][0, -1] / temperature
        probability = probability * logits.softmax(-1)[token]
        tokens.append(token)
    return probability


@pytest.mark.parametrize("task", [ENDING, FIXED])
def test_every_completion_is_listed_once(task):
    listed = exact_policy.all_completions(task)
    rows = [tuple(row[:n]) for row, n in zip(listed.tokens.tolist(), listed.mask.sum(1).tolist(), strict=True)]
    assert sorted(rows) == sorted(completions_by_hand(task))


@pytest.mark.parametrize("task", [ENDING, FIXED])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_probabilities_expectation_and_kl_agree_with_a_walk_through_the_tree(task, temperature):
    policy, reference = decoder(task), decoder(task, seed=1)
    table = exact_policy.policy_table(policy, task, temperature=temperature).exp()
    torch.testing.assert_close(table.sum(-1), torch.ones(len(table)).double(), rtol=1e-12, atol=0)
    expected, kl = 0.0, 0.0
    for prompt in task.prompts:
        for completion in completions_by_hand(task):
            p = probability_by_hand(policy, prompt, completion, temperature).item()
            q = probability_by_hand(reference, prompt, completion, temperature).item()
            expected += p * (completion[0] == task.target) / len(task.prompts)
            kl += p * math.log(p / q) / len(task.prompts)
    found = exact_policy.expected_reward(policy, task, temperature=temperature).item()
    assert found == pytest.approx(expected, rel=RTOL)
    assert exact_policy.sequence_kl(policy, reference, task, temperature=temperature).item() == pytest.approx(
        kl, rel=RTOL
    )
    objective = exact_policy.regularized_objective(policy, reference, task, beta=0.3, temperature=temperature)
    assert objective.item() == pytest.approx(expected - 0.3 * kl, rel=RTOL)


def test_the_value_gradient_agrees_with_central_differences():
    policy = decoder(ENDING)
    gradient = exact_policy.value_gradient(policy, ENDING)
    weights = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
    for index in range(0, len(weights), 61):
        values = []
        for sign in (1, -1):
            moved = weights.clone()
            moved[index] += sign * 1e-5
            other = copy.deepcopy(policy)
            torch.nn.utils.vector_to_parameters(moved, other.parameters())
            values.append(exact_policy.expected_reward(other, ENDING).item())
        assert gradient[index].item() == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-9)


def test_the_optimum_is_the_tilted_reference_and_what_is_missing_is_beta_times_the_distance():
    policy, reference, beta = decoder(ENDING), decoder(ENDING, seed=1), 0.4
    optimum = exact_policy.optimal_table(reference, ENDING, beta=beta)
    rows = exact_policy.all_completions(ENDING).tokens.tolist()
    for index, prompt in enumerate(ENDING.prompts):
        tilted = [
            probability_by_hand(reference, prompt, completion).item() * math.exp((completion[0] == 2) / beta)
            for completion in completions_by_hand(ENDING)
        ]
        by_row = {completion: weight for completion, weight in zip(completions_by_hand(ENDING), tilted, strict=True)}
        for row, probability in zip(rows, optimum[index].tolist(), strict=True):
            completion = tuple(itertools.takewhile(lambda token: token != 1, row))
            completion = (*completion, 1) if 1 in row else completion
            assert probability == pytest.approx(by_row[completion] / sum(tilted), rel=RTOL)
    q = exact_policy.policy_table(reference, ENDING).exp()
    log_z = (q * (exact_policy.reward_table(ENDING) / beta).exp()).sum(-1).log().mean().item()
    missing = beta * log_z - exact_policy.regularized_objective(policy, reference, ENDING, beta=beta).item()
    distance = exact_policy.distance_to_optimum(policy, reference, ENDING, beta=beta)
    assert missing == pytest.approx(beta * distance, rel=RTOL)


def test_a_task_with_too_many_completions_is_refused():
    with pytest.raises(ValueError, match=r"at most 4096 sequences to be enumerated; got 8\^8 = 16777216"):
        exact_policy.all_completions(toylm.LengthBonus())
    assert toylm.evaluate(*[decoder(toylm.LengthBonus())] * 2, toylm.LengthBonus())["expected_reward"] is None
