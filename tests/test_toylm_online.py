"""The training loop against a second one that batches nothing, and each method's own promises."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tolerances import RTOL

from labsrc import grpo, toylm
from labsrc.toylm import losses, online, sampling, training
from labsrc.toylm.rollout import Rollout

ONLINE = {
    "grpo": toylm.GrpoSettings,
    "rloo": toylm.RlooSettings,
    "reinforce": toylm.ReinforceSettings,
    "ppo": toylm.PpoSettings,
}
# A task with an end-of-sequence token, so completions differ in length.
ENDING = toylm.FirstToken(eos_token=2, max_new_tokens=4, prompts=((1, 3), (2, 5)), vocabulary=7, target=4)


@pytest.fixture(scope="module")
def plain_loop():
    path = Path(__file__).resolve().parent.parent / "benchmarks" / "plain_loop.py"
    spec = importlib.util.spec_from_file_location("plain_loop", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("eos_token", [None, 2])
def test_a_run_equals_one_completion_after_another_one_token_after_another(plain_loop, eos_token):
    task = toylm.FirstToken(eos_token=eos_token, max_new_tokens=3)
    settings = toylm.GrpoSettings(task=task, group_size=8, steps=4, lr=0.5, inner_updates=3, seed=5)
    trainer = toylm.train(settings)
    policy = toylm.new_trainer(settings).policy
    record = plain_loop.train(
        policy,
        trainer.reference,
        lambda completion: float(completion[0] == task.target),
        prompt=[1, 3],
        length=3,
        groups=4,
        group_size=8,
        inner_updates=3,
        lr=0.5,
        clip=0.2,
        beta=settings.beta,
        std_eps=settings.std_eps,
        seed=5,
        eos_token=eos_token,
    )
    assert any(len(set(group["rewards"])) > 1 for group in record), "no group taught anything"
    for ours, plain in zip(trainer.groups, record, strict=True):
        assert ours["completions"] == plain["completions"]
        assert ours["rewards"] == [plain["rewards"]]
        assert ours["advantages"][0] == pytest.approx(plain["advantages"], rel=RTOL)
        assert [update["loss"] for update in ours["updates"]] == pytest.approx(plain["losses"], rel=1e-9, abs=1e-13)
    for one, other in zip(trainer.policy.parameters(), policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ONLINE)
def test_the_first_inner_update_has_ratio_one_and_the_second_has_not(method):
    trainer = toylm.train(ONLINE[method](inner_updates=2, steps=8, lr=0.1))
    learnt = [group for group in trainer.groups if not all(group["zero_variance"])]
    assert all(group["updates"][0]["logp"] == group["logp_old"] for group in trainer.groups)
    assert learnt and all(group["updates"][1]["logp"] != group["logp_old"] for group in learnt)


@pytest.mark.parametrize("method", ONLINE)
def test_the_reference_ends_as_it_began_and_without_gradients(method):
    settings = ONLINE[method](lr=0.1)
    before = toylm.new_trainer(settings).policy.state_dict()
    trainer = toylm.train(settings)
    assert all(weight.grad is None for weight in trainer.reference.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in trainer.reference.state_dict().items())


@pytest.mark.parametrize("method", ONLINE)
def test_the_methods_learn_the_enumerable_task(method):
    settings = ONLINE[method](steps=60, lr=0.02, optimizer="adam", beta=0.01)
    record = toylm.run(settings)
    assert record.before["expected_reward"] < 0.2
    assert record.after["expected_reward"] > 0.9


@pytest.mark.parametrize("name", sorted(set(losses.LOSSES) - {"reinforce"}))
def test_every_loss_of_the_family_can_be_chosen_by_name_or_function_and_lowers_what_it_says(name):
    wide_radii = {"clip_low": 0.2, "clip_high": 0.2} if name in ("gspo", "luspo") else {}
    settings = toylm.GrpoSettings(
        task=ENDING, prompts_per_step=2, steps=40, optimizer="adam", lr=0.02, beta=0.01, loss=name, **wide_radii
    )
    by_name = toylm.train(settings)
    by_function = toylm.train(replace(settings, loss=getattr(grpo, f"{name}_loss"), steps=3))
    assert by_function.groups == by_name.groups[:3]
    assert by_name.monitors[-1]["reward_mean"] > by_name.monitors[0]["reward_mean"] + 0.3


def test_a_loss_of_your_own_is_used():
    calls = []

    def mine(logp, logp_old, logp_ref, advantages, mask, *, beta):
        calls.append(beta)
        return grpo.grpo_loss(logp, logp_old, logp_ref, advantages, mask, beta=beta)

    own = toylm.train(toylm.GrpoSettings(loss=mine))
    assert calls == [0.04] * 16
    assert own.groups == toylm.train(toylm.GrpoSettings()).groups


def test_the_eos_is_learnt():
    # Stopping at once is what earns here, so the probability of the EOS as first token must rise.
    task = toylm.FirstToken(eos_token=6, max_new_tokens=3)
    trainer = toylm.train(toylm.GrpoSettings(task=task, steps=60, optimizer="adam", lr=0.02, beta=0.0))
    assert trainer.monitors[0]["length"] > 2
    assert trainer.monitors[-1]["length"] < 1.3


def test_padding_changes_neither_loss_nor_gradient():
    settings = toylm.GrpoSettings(task=ENDING, prompts_per_step=2)
    trainer = toylm.new_trainer(settings)
    drawn, prompts = trainer.draw()
    assert not drawn.mask.all()

    def gradient(tokens):
        logp = trainer.logp(prompts, tokens)
        rollout = trainer.score(prompts, replace(drawn, tokens=tokens), logp.detach())
        loss = grpo.grpo_loss(logp, rollout.logp_old, rollout.logp_ref, torch.linspace(-1, 1, 32).double(), drawn.mask)
        return torch.autograd.grad(loss, list(trainer.policy.parameters()), allow_unused=True)

    noisy = torch.where(drawn.mask, drawn.tokens, torch.arange(drawn.tokens.numel()).view_as(drawn.tokens) % 7)
    for one, other in zip(gradient(drawn.tokens), gradient(noisy), strict=True):
        torch.testing.assert_close(one, other, rtol=RTOL, atol=1e-14)


def test_equal_rewards_from_the_reference_change_nothing_at_all():
    class AlwaysOne(toylm.FirstToken):
        def rewards(self, prompts, completions, mask):
            return torch.ones(len(completions), dtype=torch.float64)

    trainer = toylm.train(toylm.GrpoSettings(task=AlwaysOne()))
    assert all(monitors["zero_variance_share"] == 1 for monitors in trainer.monitors)
    start = trainer.reference.state_dict()
    assert all(torch.equal(start[name], weight) for name, weight in trainer.policy.state_dict().items())


def test_a_loss_of_zero_still_has_a_gradient():
    # questions of many users: rewards 1, 1, 0, 0 give loss 0 in the first update, and the policy moves all the same
    trainer = toylm.train(toylm.GrpoSettings(steps=8, inner_updates=1))
    learnt = [
        (group, m) for group, m in zip(trainer.groups, trainer.monitors, strict=True) if m["zero_variance_share"] == 0
    ]
    first = learnt[0][0]
    assert abs(first["updates"][0]["loss"]) < 1e-12
    assert any((a != b).any() for a, b in zip(trainer.policy.parameters(), trainer.reference.parameters(), strict=True))


def test_costs_are_counted():
    grpo_cost = toylm.train(toylm.GrpoSettings()).cost
    assert grpo_cost.generated_tokens == 8 * 16 * 2
    assert grpo_cost.trained_forwards == 8 * 16 * 2
    assert grpo_cost.frozen_forwards == grpo_cost.reward_evaluations == 8 * 16
    assert grpo_cost.optimizer_steps == 16
    without_kl = toylm.train(toylm.GrpoSettings(beta=0.0)).cost
    assert without_kl.frozen_forwards == 0
    ppo = toylm.train(toylm.PpoSettings()).cost
    assert (
        ppo.trained_parameters == 2 * grpo_cost.trained_parameters - 7 * 16
    )  # the critic's head has one output, not 8
    assert ppo.trained_forwards == 2 * grpo_cost.trained_forwards
    ended = toylm.train(toylm.GrpoSettings(task=ENDING, prompts_per_step=2))
    lengths = [len(completion) for group in ended.groups for completion in group["completions"]]
    assert ended.cost.generated_tokens == sum(lengths) < len(lengths) * 4


def test_the_kl_in_the_reward_is_the_sum_over_the_whole_completion():
    rollout = hand_rollout(logp_old=torch.full((4, 3), -1.0), logp_ref=torch.full((4, 3), -1.5))
    penalized = online.penalized_rewards(rollout, beta=0.1)
    # Lengths 3, 1, 2, 3, each token 0.5 nats above the reference.
    expected = [[1 - 0.15, 0 - 0.05], [0 - 0.1, 1 - 0.15]]
    torch.testing.assert_close(penalized, torch.tensor(expected).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": torch.ones(4, 1)}, r"groups of at least 2; got shape \(4, 1\)"),
        ({"rewards": torch.tensor([[1.0, torch.inf], [0.0, 1.0]])}, "rewards must not be infinite"),
        ({"logp_old": torch.zeros(4, 2)}, r"logp_old must have the shape \(4, 3\) of the completions; got \(4, 2\)"),
        ({"mask": torch.zeros(4, 3, dtype=torch.bool)}, "at least one token in every sequence"),
        ({"completions": torch.zeros(6, 3, dtype=torch.long)}, "prompts, completions and rewards must be"),
    ],
)
def test_data_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        hand_rollout(**change)


def test_a_missing_reward_is_refused_unless_the_advantage_knows_what_to_do_with_it():
    rewards = torch.tensor([[1.0, torch.nan, 0.0, 1.0]])
    with pytest.raises(ValueError, match="rewards must be finite"):
        toylm.GrpoSettings().advantages(rewards)
    kept = toylm.GrpoSettings(advantage="standardized_excluding_missing").advantages(rewards)
    assert kept[0, 1] == 0 and kept[0, 0] > 0


def test_several_prompts_are_drawn_without_repeating_one():
    settings = toylm.GrpoSettings(task=toylm.Addition(largest=3), prompts_per_step=5, group_size=2, steps=6)
    steps = [group["prompts"] for group in toylm.train(settings).groups]
    assert all(len({tuple(prompt) for prompt in prompts}) == 5 for prompts in steps)
    assert len({str(prompts) for prompts in steps}) > 1


def test_the_old_log_probs_are_those_at_the_temperature_that_sampled():
    settings = toylm.GrpoSettings(temperature=0.5, steps=1)
    trainer = toylm.new_trainer(settings)
    drawn, prompts = trainer.draw()
    torch.testing.assert_close(trainer.logp(prompts, drawn.tokens).detach(), drawn.logp, rtol=RTOL, atol=1e-14)


def test_runs_repeat_and_seeds_differ():
    one, two = (toylm.train(toylm.GrpoSettings()).groups for _ in range(2))
    assert one == two
    assert toylm.train(toylm.GrpoSettings(seed=48)).groups != one


def test_evaluate_reports_the_probability_of_the_target():
    trainer = toylm.new_trainer(toylm.GrpoSettings())
    logits, _ = trainer.policy(torch.tensor([[1, 3]]))
    probability = logits[0, -1].softmax(-1)[6].item()
    found = training.evaluate(trainer.policy, trainer.reference, trainer.settings.task)
    assert found["expected_reward"] == pytest.approx(probability, rel=RTOL)
    assert found["sequence_kl"] == pytest.approx(0, abs=1e-14)


def hand_rollout(**change):
    tokens = torch.tensor([[4, 4, 4], [2, 2, 2], [4, 2, 2], [4, 4, 4]])
    parts = {
        "prompts": torch.tensor([[1, 3], [2, 5]]),
        "completions": tokens,
        "mask": sampling.valid_tokens(tokens, 2),
        "rewards": torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64),
        "logp_old": torch.zeros(4, 3),
        "logp_ref": None,
        "entropy": torch.zeros(4, 3),
    }
    return Rollout(**(parts | change))
