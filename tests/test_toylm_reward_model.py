import torch

from labsrc import toylm
from labsrc.toylm import exact_policy, offline, reward_model, start

LEARNED = toylm.LearnedReward(task=toylm.FirstToken())


def test_the_scorer_orders_completions_as_the_reward_it_was_taught():
    table = exact_policy.reward_table(LEARNED)[0]
    truth = exact_policy.reward_table(LEARNED.task)[0]
    assert table[truth == 1].min() > table[truth == 0].max()
    # Bradley–Terry recovers differences: with labels at σ(1), the gap is near 1.
    gap = table[truth == 1].mean() - table[truth == 0].mean()
    assert abs(gap.item() - 1) < 0.1


def test_training_on_the_learned_reward_raises_the_intended_one():
    trainer = toylm.train(toylm.GrpoSettings(task=LEARNED, steps=60, optimizer="adam", lr=0.02, beta=0.01))
    table = exact_policy.policy_table(trainer.policy, LEARNED).exp()
    intended = (table * exact_policy.reward_table(LEARNED.task)).sum().item()
    assert intended > 0.9


def test_the_score_reads_the_last_valid_token_and_no_padding():
    task = toylm.FirstToken(eos_token=0, max_new_tokens=3)
    scorer = start.fresh_model(toylm.ModelSettings(), task, outputs=1)
    prompts = torch.tensor([[1, 3], [1, 3]])
    completions = torch.tensor([[5, 0, 0], [5, 0, 7]])
    mask = torch.tensor([[True, True, False]] * 2)
    one, other = reward_model.score(scorer, prompts, completions, mask).tolist()
    alone = scorer(torch.tensor([[1, 3, 5, 0]]))[0][0, -1, 0].item()
    assert abs(one - other) < 1e-14 and abs(one - alone) < 1e-14


def test_the_preference_loss_at_equal_scores_is_log_two():
    task = toylm.FirstToken()
    scorer = start.fresh_model(toylm.ModelSettings(), task, outputs=1)
    torch.nn.init.zeros_(scorer.head.weight)
    pairs = offline.pairs_from_tokens(toylm.DpoSettings().pairs, task)
    scores = reward_model.score(scorer, pairs.prompts, pairs.completions, pairs.mask)
    assert abs(reward_model.preference_loss(scores).item() - 0.6931471805599453) < 1e-14
    # chosen first: raising their scores lowers the loss
    assert reward_model.preference_loss(torch.tensor([1.0, 1.0, 0.0, 0.0])) < 0.4


def test_the_same_settings_give_the_same_scorer():
    small = toylm.LearnedReward(pairs=16, steps=3)
    one = exact_policy.reward_table(small)
    reward_model.fitted_scorer.cache_clear()
    assert torch.equal(one, exact_policy.reward_table(small))
