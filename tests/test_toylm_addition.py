"""The arithmetic task, from a start that has seen a few answers to one that adds."""

from labsrc import toylm
from labsrc.toylm import start


def test_grpo_takes_addition_from_below_half_to_above_nine_in_ten():
    settings = toylm.addition_settings()
    accuracy = []

    def look(trainer):
        if trainer.steps_done in (0, settings.steps):
            accuracy.append(toylm.greedy_reward(trainer.policy, settings.task))

    trainer = toylm.train(settings, keep_groups=False, observe=look)
    assert accuracy[0] < 0.5
    assert accuracy[1] > 0.9
    # Right answers have one or two digits and their EOS: 55 sums below ten, 45 of two digits.
    assert 2.3 < trainer.monitors[-1]["length"] < 2.6


def test_the_supervised_start_lowers_its_loss_and_is_shared_by_the_methods():
    settings = toylm.addition_settings()
    policy = start.fresh_model(settings.model, settings.task)
    history = start.fine_tune(policy, settings.task, settings.start)
    assert len(history) == settings.start.steps and history[-1] < history[0] / 3
    shared = toylm.new_trainer(toylm.addition_settings(toylm.RlooSettings)).reference.state_dict()
    assert all((shared[name] == weight).all() for name, weight in policy.state_dict().items())
