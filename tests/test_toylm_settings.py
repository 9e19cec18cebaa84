import json

import pytest

from labsrc import advantages, grpo, toylm
from labsrc.toylm import records


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 1}, "group_size must be a whole number of at least 2; got 1"),
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0"),
        ({"inner_updates": 0}, "inner_updates must be"),
        ({"clip_low": 0.0}, "clip_low must lie strictly between 0 and 1; got 0.0"),
        ({"clip_high": 1.0}, "clip_high must lie strictly between 0 and 1; got 1.0"),
        ({"beta": -0.1}, "beta must be at least 0; got -0.1"),
        ({"lr": 0.0}, "lr must be greater than 0; got 0.0"),
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"std_eps": -1e-9}, "std_eps must be at least 0"),
        ({"ddof": 2}, "ddof must be one of"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"optimizer": "lion"}, "optimizer must be one of"),
        ({"loss": "gpo"}, "loss must be a function or one of .*; got 'gpo'"),
        ({"advantage": "mean"}, "advantage must be a function or one of .*; got 'mean'"),
        ({"loss": "cispo", "clip_low": 0.2}, "the loss cispo takes .*; got clip_low = 0.2"),
        ({"loss": "cispo", "clip_high": 0.0}, "clip_high must be greater than 0"),
        ({"loss_options": {"tau": 1.0}}, "the loss grpo takes .*; got tau = 1.0"),
        ({"loss": "reinforce"}, "beta must be 0 for a loss without KL term unless kl_in_reward=True; got 0.04"),
        ({"prompts_per_step": 2}, "prompts_per_step must be at most the task's 1; got 2"),
        ({"start": toylm.StartSettings()}, "start must be None for a task without answers"),
    ],
)
def test_grpo_settings_that_cannot_be_run_are_refused_before_anything_is_computed(options, message):
    with pytest.raises(ValueError, match=message):
        toylm.GrpoSettings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta must be greater than 0; got 0.0"),
        ({"pairs": ()}, "either pairs, or pairs=.* and sampled_pairs ≥ 1; got 0 pairs and sampled_pairs=0"),
        ({"sampled_pairs": 4}, "either pairs, or"),
        ({"pairs": (((1, 3), (), (4, 2)),)}, "pairs: chosen must have 1 to 2 tokens"),
        ({"pairs": (((1, 3), (6,), (4, 2)),)}, "pairs: chosen shorter than 2 tokens must end in the EOS"),
        ({"pairs": (((1, 3), (6, 2), (4, 8)),)}, "pairs: rejected must hold ids below 8"),
        ({"pairs": (((1,), (6, 2), (4, 2)),)}, "pairs: prompt must have 2 to 2 tokens"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"labels": "coin"}, "labels must be one of"),
    ],
)
def test_dpo_settings_that_cannot_be_run_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        toylm.DpoSettings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gae_lambda": 1.1}, r"gae_lambda must lie in \[0, 1\]; got 1.1"),
        ({"gamma": -0.1}, r"gamma must lie in \[0, 1\]"),
        ({"critic_lr": 0.0}, "critic_lr must be greater than 0"),
        ({"kl_in_reward": False}, "kl_in_reward must be True for ppo"),
    ],
)
def test_ppo_settings_that_cannot_be_run_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        toylm.PpoSettings(**options)


def test_the_defaults_are_the_protocol_of_the_small_experiment():
    settings = toylm.GrpoSettings()
    assert settings.task == toylm.FirstToken(target=6, prompts=((1, 3),), max_new_tokens=2, eos_token=None)
    assert (settings.group_size, settings.steps, settings.inner_updates) == (16, 8, 2)
    assert (settings.lr, settings.optimizer, settings.beta, settings.std_eps) == (0.02, "sgd", 0.04, 1e-8)
    assert (settings.seed, settings.ddof, settings.loss_function) == (47, 0, grpo.grpo_loss)
    dpo = toylm.DpoSettings()
    assert dpo.pairs == (((1, 3), (6, 2), (4, 2)), ((2, 5), (6, 2), (7, 2)))
    assert (dpo.beta, dpo.steps, dpo.optimizer, dpo.lr) == (0.3, 30, "sgd", 0.1)


@pytest.mark.parametrize(
    "settings",
    [
        toylm.GrpoSettings(loss=grpo.dr_grpo_loss, advantage=advantages.centered, clip_high=0.3),
        toylm.GrpoSettings(task=toylm.LengthBonus(bonus=0.3), loss="sapo", loss_options={"temperature_negative": 2.0}),
        toylm.RlooSettings(task=toylm.Addition(largest=4), start=toylm.StartSettings(steps=3), prompts_per_step=25),
        toylm.ReinforceSettings(model=toylm.ModelSettings(width=8, heads=4)),
        toylm.PpoSettings(gae_lambda=1.0),
        toylm.DpoSettings(),
        toylm.DpoSettings(pairs=(), sampled_pairs=8, batch_size=4, task=toylm.LearnedReward(pairs=4, steps=2)),
    ],
    ids=lambda settings: settings.method,
)
def test_settings_survive_json(settings):
    data = json.loads(json.dumps(records.settings_to_dict(settings)))
    again = records.settings_from_dict(data)
    assert type(again) is type(settings)
    assert records.settings_to_dict(again) == records.settings_to_dict(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "kto"}, "method must be one of .*; got 'kto'"),
        ({"task": {"name": "chess"}}, "task must be one of .*; got 'chess'"),
        ({"loss": "mine"}, "loss must be a function or one of"),
        ({"colour": "red"}, "settings must be those of GrpoSettings"),
    ],
)
def test_unknown_names_in_saved_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        records.settings_from_dict(records.settings_to_dict(toylm.GrpoSettings()) | change)


def test_what_a_loss_is_given_is_what_the_settings_say():
    assert toylm.GrpoSettings(loss="dr_grpo").loss_keywords == {"beta": 0.04, "max_length": 2}
    assert toylm.RlooSettings(beta=0.3).loss_keywords == {"beta": 0.0}
    assert toylm.GrpoSettings(clip_high=0.28).loss_keywords == {"beta": 0.04, "clip_high": 0.28}


@pytest.mark.parametrize("kind", records.SETTINGS.values(), ids=records.SETTINGS)
def test_the_addition_settings_share_task_model_and_start(kind):
    settings, grpo_settings = toylm.addition_settings(kind), toylm.addition_settings()
    for name in ("task", "model", "start", "optimizer", "lr", "steps"):
        assert getattr(settings, name) == getattr(grpo_settings, name)
    assert toylm.addition_settings(kind, steps=3).steps == 3
