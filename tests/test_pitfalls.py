"""Every pitfall: the assertion passes the right function and fails its faulty twin, and a real run shows the damage."""

import math

import pytest
import torch

from labsrc import kl, toylm
from labsrc.pitfalls import PITFALLS, groups, judges, lengths, objective, scale, tokens

ALL = list(PITFALLS.values())
# The faulty twin ends higher: its number is an error, a drift or a distance. Elsewhere it ends lower.
HIGHER = {
    "equal rewards, residue",
    "re-tokenised text",
    "temperature on one side",
    "mean instead of sum",
    "k1 as a loss",
    "kl_div the wrong way",
    "drifting judge",
}


def test_the_gallery_holds_the_bugs_of_the_chapter_under_their_own_names():
    assert len(PITFALLS) == 15
    assert all(name == pitfall.name for name, pitfall in PITFALLS.items())


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def default_dtype(request):
    """A notebook may have chosen float64 for all; a twin must not live by the default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("pitfall", ALL, ids=lambda pitfall: pitfall.name)
def test_the_assertion_passes_the_right_function(pitfall):
    pitfall.assertion(pitfall.right)
    assert pitfall.finding(pitfall.right) == ""


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("pitfall", ALL, ids=lambda pitfall: pitfall.name)
def test_the_assertion_fails_the_faulty_twin_and_says_by_how_much(pitfall):
    with pytest.raises(AssertionError):
        pitfall.assertion(pitfall.faulty)
    assert any(character.isdigit() for character in pitfall.finding(pitfall.faulty))


@pytest.mark.parametrize("pitfall", ALL, ids=lambda pitfall: pitfall.name)
def test_training_is_bent(pitfall):
    effect = pitfall.effect()
    assert math.isfinite(effect.right)
    assert math.isfinite(effect.faulty)
    # A twentieth of the larger number, so that no rounding on another machine decides; the gaps are larger.
    gap = effect.faulty - effect.right if pitfall.name in HIGHER else effect.right - effect.faulty
    floor = {"sample deviation": 0.01, "normalised per rank": 0.02, "divided twice": 0.01}.get(pitfall.name, 0.05)
    assert gap > floor * max(abs(effect.right), abs(effect.faulty)), effect


@pytest.mark.parametrize("pitfall", ALL, ids=lambda pitfall: pitfall.name)
def test_the_twins_differ_in_a_line_or_two(pitfall):
    changed = [line for line in pitfall.diff().splitlines() if line[0] in "+-"]
    assert 1 <= len(changed) <= 4
    assert pitfall.right.__doc__
    assert pitfall.faulty.__doc__.startswith("Faulty")


def test_a_shuffled_batch_gets_the_advantages_of_the_ordered_one():
    rewards, ids = torch.arange(8.0).square(), groups.rows_of_prompts(torch.arange(2), 4)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    ordered = groups.advantages_by_prompt(rewards, ids, 4)
    # The order of a sum may change its last digit.
    torch.testing.assert_close(groups.advantages_by_prompt(rewards[order], ids[order], 4), ordered[order])
    torch.testing.assert_close(groups.advantages_by_position(rewards, ids, 4), ordered)


def test_the_easy_prompt_pays_a_bonus_and_the_hard_one_does_not():
    task = groups.EasyAndHard(bonus=2.0)
    completions = torch.tensor([[6, 1], [5, 6], [6, 0], [1, 1]])
    prompts = torch.tensor([[1, 3], [1, 3], [2, 5], [2, 5]])
    rewards = task.rewards(prompts, completions, torch.ones(4, 2, dtype=torch.bool))
    assert rewards.tolist() == [3.0, 2.0, 1.0, 0.0]


def test_the_sample_deviation_scales_every_advantage_by_one_factor():
    rewards = torch.tensor([[0.2, 0.8, 1.4, 0.6]], dtype=torch.float64)
    factor = scale.population_scaled(rewards) / scale.sample_scaled(rewards)
    torch.testing.assert_close(factor, torch.full_like(factor, math.sqrt(4 / 3)), rtol=1e-12, atol=0)


def test_equal_rewards_without_the_residue_leave_the_policy_exactly_where_it_was():
    assert scale.drift_on_equal_rewards(scale.exact_zero_for_equal) == 0


def test_a_greedy_tokenizer_writes_one_text_one_way():
    assert tokens.decoded([0, 1]) == tokens.decoded([2, 3]) == "abc"
    assert tokens.encoded("abc") == [2, 3]
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    changed = (tokens.tokens_from_text(pairs) != pairs).any(-1)
    assert pairs[changed].tolist() == [[0, 1]]
    assert torch.equal(tokens.tokens_as_sampled(pairs), pairs)


def test_dpo_on_sums_ends_at_the_closed_form_and_on_means_far_beyond():
    wanted = math.log(3) / 0.3
    # 300 steps of descent come this near to the rest point.
    assert lengths.learned_log_odds(lengths.sequence_logp) == pytest.approx(wanted, abs=1e-3)
    assert lengths.learned_log_odds(lengths.mean_token_logp) > 2 * wanted


def test_adam_hides_the_second_division_almost_wholly():
    right, faulty = (
        lengths.target_probability(twin, optimizer="adam")
        for twin in (lengths.accumulated_mean, lengths.accumulated_mean_divided_again)
    )
    # Adam's own guard, 1e-8 beside a gradient four times smaller, is all that is left of the factor.
    assert faulty == pytest.approx(right, abs=1e-4)


def test_the_larger_product_for_bad_tokens_is_what_the_twin_computes():
    log_ratio, bad = torch.tensor([0.5, 0.9, 1.5, 0.5, 1.5]).log(), torch.tensor([-1.0, -1.0, -2.0, 1.0, 1.0])
    ratio = log_ratio.exp()
    products = ratio * bad, ratio.clamp(0.8, 1.2) * bad
    wanted = torch.where(bad < 0, torch.maximum(*products), torch.minimum(*products))
    torch.testing.assert_close(objective.dropped_when_wrong(log_ratio, bad), wanted)
    torch.testing.assert_close(objective.kept_when_wrong(log_ratio, bad), torch.minimum(*products))


def test_kl_div_gives_both_directions_and_nan_for_log_probabilities_without_the_flag():
    p, q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    torch.testing.assert_close(objective.kl_to_reference(p.log(), q.log()), kl.kl_divergence(p, q))
    torch.testing.assert_close(objective.kl_from_reference(p.log(), q.log()), kl.kl_divergence(q, p))
    assert torch.nn.functional.kl_div(q.log(), p.log(), reduction="sum").isnan()


def test_exact_ascent_on_the_right_kl_rests_at_the_closed_form():
    # Ascent is linear: 400 steps leave this much, fifty thousand times less than the wrong direction does.
    assert objective.distance_to_optimum(objective.kl_to_reference) < 1e-8
    assert objective.distance_to_optimum(objective.kl_from_reference) > 1e-2


def test_a_separate_judge_reports_what_the_fitted_scorer_says_at_every_step():
    run = judges.run_under(judges.separate_judge, steps=5)
    assert run.seen == pytest.approx(run.fitted, abs=1e-12)
    shared = judges.run_under(judges.shared_judge, steps=5)
    assert shared.seen[0] == pytest.approx(shared.fitted[0], abs=1e-12)  # nothing has moved yet
    assert shared.error > 1e-4


def test_a_shared_judge_is_the_policys_own_layers():
    policy = toylm.new_trainer(toylm.GrpoSettings()).policy
    scorer = toylm.new_trainer(toylm.GrpoSettings()).policy
    assert judges.shared_judge(policy, scorer).blocks is policy.blocks
    assert judges.separate_judge(policy, scorer).blocks is not scorer.blocks


def test_a_report_holds_the_diff_the_assertion_and_both_numbers():
    pitfall = PITFALLS["kl_div the wrong way"]
    report, effect = pitfall.report(), pitfall.effect()
    assert report.startswith(pitfall.diff())
    assert "def assert_direction_of_the_kl" in report
    assert pitfall.finding(pitfall.faulty) in report
    assert f"right {effect.right:.4f}, faulty {effect.faulty:.4f}" in report
