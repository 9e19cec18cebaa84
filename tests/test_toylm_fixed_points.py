import copy
import itertools

import pytest
import torch
from tolerances import RTOL

from labsrc import closed_form, toylm
from labsrc.toylm import exact_policy, fixed_points

Q, R, BETA, G = [0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], 0.6, 3


@pytest.fixture(scope="module")
def found():
    return fixed_points.fixed_points(Q, R, beta=BETA, group_size=G)


def test_all_are_zeros_to_which_the_method_returns(found):
    assert len(found) == 5
    for point in found.values():
        assert point.residual <= 1e-12 and point.stable
        assert point.policy.sum().item() == pytest.approx(1, rel=RTOL)


@pytest.mark.parametrize("name", ["leave-one-out, true KL gradient", "DPO, population preferences"])
def test_what_estimates_the_right_thing_reaches_the_optimum(name, found):
    # The book's own numbers for this case.
    expected = torch.tensor([0.020805863, 0.230603537, 0.748590599], dtype=torch.float64)
    torch.testing.assert_close(found[name].policy, expected, rtol=1e-7, atol=0)
    assert abs(found[name].kl_to_optimum) < 1e-12


@pytest.mark.parametrize("group_size", [2, 3, 5])
def test_the_group_mean_reaches_the_optimum_of_a_larger_beta(group_size):
    point = fixed_points.fixed_points(Q, R, beta=BETA, group_size=group_size)["group mean, true KL gradient"]
    larger = closed_form.optimal_policy(Q, R, beta=BETA * group_size / (group_size - 1))
    torch.testing.assert_close(point.policy, larger, rtol=1e-9, atol=0)
    assert point.kl_to_optimum > 1e-3


def mean_advantages(p, advantage):
    """E[A_1 | a_1] by walking through all groups."""
    total = [0.0] * len(p)
    for group in itertools.product(range(len(p)), repeat=G):
        rewards = [R[action] for action in group]
        others = 1.0
        for action in group[1:]:
            others *= p[action]
        total[group[0]] += others * advantage(rewards)[0]
    return total


def standardize(rewards):
    mean = sum(rewards) / len(rewards)
    std = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
    return [0.0 if std == 0 else (reward - mean) / (std + 1e-4) for reward in rewards]


def test_grpo_as_published_settles_where_its_advantage_balances_the_forward_kl(found):
    # p_a·E[A | a] = β·(p_a − q_a): the k3 of fixed samples pulls with p − q, not with the logarithm of their ratio.
    point = found["GRPO as published"]
    p = point.policy.tolist()
    for p_a, q_a, advantage in zip(p, Q, mean_advantages(p, standardize), strict=True):
        assert p_a * advantage == pytest.approx(BETA * (p_a - q_a), abs=1e-10)
    assert point.kl_to_optimum > 0.01


def test_the_wrong_kl_gradient_alone_moves_the_fixed_point(found):
    assert found["leave-one-out, k3 on fixed samples"].kl_to_optimum > 1e-3
    k3 = fixed_points.fixed_sample_k3_field(torch.tensor(Q, dtype=torch.float64))(
        torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
    )
    torch.testing.assert_close(k3, torch.tensor([0.5, -0.1, -0.4], dtype=torch.float64), rtol=1e-7, atol=0)


def test_a_decoder_reaches_the_optimum_by_exact_ascent_and_by_population_preferences():
    task = toylm.FirstToken(vocabulary=4, target=2, prompts=((1, 3),))
    trainer = toylm.new_trainer(toylm.GrpoSettings(task=task))
    start = exact_policy.distance_to_optimum(trainer.policy, trainer.reference, task, beta=0.5)
    assert start > 0.05
    for fit in (fixed_points.fit_objective, fixed_points.fit_population_preferences):
        assert fit(copy.deepcopy(trainer.policy), trainer.reference, task, beta=0.5, steps=150) < 1e-7


def test_population_preferences_agree_with_sampled_ones_in_the_mean():
    logp_ref = torch.tensor(Q, dtype=torch.float64).log()
    logp = torch.tensor([0.1, 0.4, 0.5], dtype=torch.float64).log()
    rewards = torch.tensor(R, dtype=torch.float64)
    by_hand = 0.0
    for a, b in itertools.product(range(3), repeat=2):
        label = 1 / (1 + torch.exp(rewards[b] - rewards[a]))
        margin = (logp[a] - logp_ref[a]) - (logp[b] - logp_ref[b])
        by_hand += Q[a] * Q[b] * label * torch.log(1 + torch.exp(-BETA * margin))
    found = fixed_points.population_dpo_loss(logp, logp_ref, rewards, beta=BETA)
    assert found.item() == pytest.approx(by_hand.item(), rel=RTOL)


@pytest.mark.parametrize(
    ("reference", "rewards", "message"),
    [
        ([0.5, 0.5, 0.0], R, "reference must give every completion some probability"),
        ([0.5, 0.4, 0.2], R, "reference must sum to 1"),
        (Q, [0.0, 1.0], "reference and rewards must have the same shape"),
    ],
)
def test_cases_that_have_no_optimum_are_refused(reference, rewards, message):
    with pytest.raises(ValueError, match=message):
        fixed_points.fixed_points(reference, rewards, beta=BETA, group_size=G)


def test_a_field_without_a_zero_is_refused():
    drift = torch.tensor([1.0, -1.0], dtype=torch.float64)
    with pytest.raises(ValueError, match="field must have a zero where it leads"):
        fixed_points.fixed_point(
            lambda logits: drift, torch.zeros(2).double(), optimum=torch.tensor([0.5, 0.5]), follow=3
        )
