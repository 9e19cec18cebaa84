"""Every labelled equation is a definition, or a cell or a test here compares its two sides.

A new equation has to be entered, and an entry has to exist: so it can be looked up where an equation is checked.
"""

import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parent / "notebooks").glob("0*_*.ipynb"))

# A label to the id of a cell whose output compares, or to "file::test"; "" is a definition, where nothing is claimed.
CHECKED_BY = {
    "eq-objective": "",
    "eq-stationary": "ch01-022",  # r − β·log(p*/q) is one constant for all answers
    "eq-solved": "ch01-022",
    "eq-tilt": "test_closed_form::test_a_numerical_search_from_anywhere_ends_at_the_closed_form",
    "eq-gibbs": "ch01-016",
    "eq-inverse": "ch01-022",
    "eq-substituted": "ch01-016",  # the same identity before its logarithms are joined
    "eq-kl-positive": "ch01-018",
    "eq-best-of-n": "test_closed_form::test_best_of_n_is_what_drawing_n_and_keeping_the_first_best_gives",
    "eq-dpo-bt": "test_preference_pairs::test_the_odds_of_two_labels_are_the_exponential_of_the_gap",
    "eq-dpo-reward-model": "",
    "eq-dpo-inverse": "ch01-022",
    "eq-dpo-cancel": "ch02-010",
    "eq-dpo-loss": "ch02-021",
    "eq-dpo-sum": "test_preference::test_a_sequence_counts_the_sum_of_its_valid_tokens",
    "eq-dpo-cross-entropy": "ch02-025b",
    "eq-dpo-gradient": "ch02-025",
    "eq-dpo-margin": "ch02-039",  # for two answers that the reference does not like alike
    "eq-dpo-feature": "ch02-046",
    "eq-dpo-ipo": "ch02-053",
    "eq-group-value": "",
    "eq-group-reinforce": "ch03-051",  # for every critic, and so for none
    "eq-group-softmax-score": "ch03-047",
    "eq-group-score-zero": "ch03-047",
    "eq-group-softmax-gradient": "ch03-047",
    "eq-group-variance": "ch03-049",
    "eq-group-best-baseline": "ch03-049",
    "eq-group-token-baseline": "ch03-051",
    "eq-group-critic": "test_baselines::test_a_prefix_value_is_the_mean_reward_of_the_sequences_that_begin_so",
    "eq-group-estimator": "",
    "eq-group-leave-one-out": "test_advantages::test_leave_one_out_takes_the_mean_of_the_others",
    "eq-group-weight": "ch03-055",
    "eq-group-hill": "ch03-055",
    "eq-group-arcsine": "test_exact::test_weight_tends_to_the_slope_of_twice_the_arcsine_of_the_root",
    "eq-group-guard": "ch03-033",
    "eq-group-affine": "ch03-035",
    "eq-clip-importance": "ch04-030",
    "eq-clip-ratio-gradient": "ch04-020",
    "eq-clip-surrogate": "ch04-010",
    "eq-clip-gradient": "ch04-020",
    "eq-clip-logits": "ch04-020",
    "eq-clip-left-over": "ch04-021a",
    "eq-clip-estimators": "",
    "eq-clip-kl-gradient": "test_exact::test_kl_gradient_is_the_published_one_and_the_slope_of_the_kl",
    "eq-clip-forward": "ch04-035",
    "eq-clip-two-parts": "ch04-037",
    "eq-clip-snapshot": "ch04-058",
    "eq-clip-chain": "ch04-092",
    "eq-clip-missing": "ch04-066",
    "eq-toy-first-gradient": (
        "test_grpo::test_on_policy_every_loss_has_the_gradient_of_reinforce_at_its_own_token_weights"
    ),
    "eq-trainer-weights": "test_aggregation::test_the_gradient_is_the_weight_of_a_token_and_zero_on_padding",
    "eq-trainer-stop-score": "test_length_bias::test_scores_are_the_derivatives_of_the_log_probabilities",
    "eq-trainer-push": "ch06-018",
    "eq-trainer-ratios": "",
    "eq-trainer-rounds": "test_toylm_dynamic_sampling::test_rounds_per_group_are_those_of_the_closed_form",
    "eq-cost-share": "test_ledger::test_no_critic_up_to_the_policys_size_is_more_than_half_of_the_memory",
    "eq-cost-break-even": "ch08-009b",
    "eq-cost-reversal": "test_toylm_seeds::test_for_normal_results_it_is_the_closed_form",
    "eq-cost-memory": "ch08-011",
    "eq-cost-tokens": "test_ledger::test_an_online_update_by_hand",
    "eq-bugs-split": "",
    "eq-bugs-variance": "ch07-006",
}


def cells(path):
    return json.loads(path.read_text("utf-8"))["cells"]


def labels(path):
    for cell in cells(path):
        if cell["cell_type"] == "markdown":
            yield from re.findall(r"^\$\$ \((eq-[\w-]+)\)", "".join(cell["source"]), flags=re.MULTILINE)


def test_every_labelled_equation_is_listed_once():
    assert sorted(label for path in NOTEBOOKS for label in labels(path)) == sorted(CHECKED_BY)


@pytest.mark.parametrize(("label", "where"), [entry for entry in CHECKED_BY.items() if entry[1]])
def test_what_is_said_to_check_an_equation_exists(label, where):
    if "::" in where:
        file, name = where.split("::")
        assert f"def {name}(" in (HERE / f"{file}.py").read_text("utf-8")
    else:
        printed = {cell["id"] for path in NOTEBOOKS for cell in cells(path) if cell.get("outputs")}
        assert where in printed
