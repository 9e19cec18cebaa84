import math

import pytest
import torch
from tolerances import RTOL

from labsrc import toylm
from labsrc.toylm import offline, sampling


def test_the_first_loss_is_log_two_and_the_last_is_lower():
    record = toylm.run_dpo()
    losses = [monitors["loss"] for monitors in record.monitors]
    assert len(losses) == 30
    assert losses[0] == pytest.approx(0.6931471805599453, rel=RTOL)
    assert losses[-1] < 0.1
    assert record.reference_has_gradients is False
    assert record.after["sequence_kl"] > 1


def test_a_run_equals_pair_after_pair_token_after_token():
    settings = toylm.DpoSettings(steps=3)
    trainer = toylm.train(settings)
    policy = toylm.new_trainer(settings).policy
    for step in range(3):
        total = 0.0
        for prompt, chosen, rejected in settings.pairs:
            margin = 0.0
            for sign, completion in ((1, chosen), (-1, rejected)):
                for model, weight in ((policy, 1), (trainer.reference, -1)):
                    tokens = list(prompt)
                    for token in completion:
                        logp = model(torch.tensor([tokens]))[0][0, -1].log_softmax(-1)[token]
                        margin = margin + sign * weight * logp
                        tokens.append(token)
            total = total + torch.log(1 + torch.exp(-0.3 * margin)) / 2
        assert trainer.monitors[step]["loss"] == pytest.approx(total.item(), rel=1e-9)
        gradient = torch.autograd.grad(total, list(policy.parameters()), allow_unused=True)
        with torch.no_grad():
            for weight, slope in zip(policy.parameters(), gradient, strict=True):
                weight -= 0 if slope is None else 0.1 * slope
    for one, other in zip(trainer.policy.parameters(), policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def labelled(labels, count, task=None):
    task = toylm.FirstToken() if task is None else task
    policy = toylm.new_trainer(toylm.GrpoSettings(task=task)).policy
    generator = torch.Generator().manual_seed(0)
    drawn = offline.draw_pairs(policy, task, count, generator=generator)
    pairs = offline.label_pairs(drawn, task, labels=labels, generator=generator)
    return [rows[:, 0] == 6 for rows in pairs.completions.chunk(2)]


def test_labels_follow_bradley_terry():
    chosen, rejected = labelled("bradley_terry", 20_000)
    assert len(chosen) == 20_000
    decided = chosen != rejected
    wins = (chosen & decided).sum().item()
    n, p = decided.sum().item(), 1 / (1 + math.exp(-1))
    assert n > 3000
    assert abs(wins / n - p) <= 4 * (p * (1 - p) / n) ** 0.5


def test_labels_by_the_higher_reward_are_always_right_and_ties_left_out():
    chosen, rejected = labelled("higher_reward", 500)
    assert 0 < len(chosen) < 500
    assert chosen.all() and not rejected.any()


def test_ties_only_are_refused():
    class NeverRewarded(toylm.FirstToken):
        def rewards(self, prompts, completions, mask):
            return torch.zeros(len(completions), dtype=torch.float64)

    with pytest.raises(ValueError, match="all 10 drawn were ties, which higher_reward leaves out"):
        labelled("higher_reward", 10, NeverRewarded())


def test_sampled_pairs_share_a_prompt_and_are_counted_as_cost():
    settings = toylm.DpoSettings(pairs=(), sampled_pairs=50, batch_size=16, steps=5, optimizer="adam", lr=0.01)
    trainer = toylm.train(settings)
    prompts = trainer.pairs.prompts.view(2, 50, 2)
    assert torch.equal(prompts[0], prompts[1])
    assert trainer.cost.generated_tokens == 50 * 2 * 2
    assert trainer.cost.reward_evaluations == 100
    assert trainer.cost.frozen_forwards == 100
    assert trainer.cost.trained_forwards == 5 * 32
    assert all(len(set(group["pairs"])) == 16 for group in trainer.groups)


def test_completions_that_end_early_are_padded_and_masked():
    task = toylm.FirstToken(eos_token=0, max_new_tokens=3)
    pairs = offline.pairs_from_tokens((((1, 3), (6, 0), (5, 4, 4)),), task)
    assert pairs.completions.tolist() == [[6, 0, 0], [5, 4, 4]]
    assert torch.equal(pairs.mask, sampling.valid_tokens(pairs.completions, 0))


def test_dpo_on_sampled_pairs_raises_the_reward():
    record = toylm.run(toylm.DpoSettings(pairs=(), sampled_pairs=400, steps=60, optimizer="adam", lr=0.01, beta=0.1))
    assert record.after["expected_reward"] > record.before["expected_reward"] + 0.5
