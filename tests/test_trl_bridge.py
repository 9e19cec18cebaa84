"""A labsrc setting exported to TRL, TRL's defaults, and a real run of GRPOTrainer recomputed by labsrc."""

import dataclasses
import os
import shutil
import subprocess
import sysconfig

import pytest
import torch

from labsrc import advantages, grpo, toylm
from labsrc.toylm.losses import LOSSES
from labsrc.toylm.tasks import Addition, FirstToken, LengthBonus
from labsrc.trl_bridge import agreement, defaults, library, stand_in, tiny_llama, tiny_run
from labsrc.trl_bridge.export import CONFIG_NAME, export

# A default of TRL's own that transformers deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.gradient_checkpointing. is deprecated:FutureWarning")

# Float32 on both sides, and TRL's logs are means of means.
LOGGED = 1e-5


@pytest.fixture(scope="module")
def trl():
    pytest.importorskip("trl", reason=f"TRL is not installed: pip install trl=={library.VERSION}")
    return library.load()


def config_of(trl, exported, tmp_path):
    return trl.grpo_config(output_dir=str(tmp_path), use_cpu=True, report_to=[], **exported.keywords)


# ---------------------------------------------------------------- defaults


def test_defaults_are_those_of_a_configuration_that_was_made(trl, tmp_path):
    read = defaults.field_defaults(trl.grpo_config)
    made = trl.grpo_config(output_dir=str(tmp_path), use_cpu=True)
    for name in ("loss_type", "beta", "epsilon", "num_generations", "scale_rewards", "learning_rate", "max_grad_norm"):
        assert read[name] == getattr(made, name)
    # These two are decided when the configuration is made.
    assert read["epsilon_high"] is None and read["bf16"] is None


def test_a_default_factory_is_called_and_a_field_without_default_left_out():
    @dataclasses.dataclass
    class Config:
        needed: int
        given: int = 3
        made: list = dataclasses.field(default_factory=lambda: [1])

    assert defaults.field_defaults(Config) == {"given": 3, "made": [1]}
    with pytest.raises(ValueError, match="config must be a dataclass"):
        defaults.field_defaults(int)
    with pytest.raises(ValueError, match="config must be a dataclass"):
        defaults.field_defaults(Config(1))


# ---------------------------------------------------------------- the export


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "reinforce"])
def test_an_exported_loss_is_the_loss_of_the_setting(trl, tmp_path, name):
    """The configuration's values, put into TRL's own loss, give the value and gradient of the setting's."""
    settings = toylm.GrpoSettings(task=FirstToken(max_new_tokens=10), loss=name, beta=0.03)
    config = config_of(trl, export(settings), tmp_path)
    batch = agreement.ragged_batch(3)
    ours = agreement.labsrc_loss(settings.loss_function, batch, **settings.loss_keywords)
    shared = set(stand_in.GRPO_OPTIONS) & {field.name for field in dataclasses.fields(config)}
    changed = {option: getattr(config, option) for option in shared}
    changed |= {"epsilon_low": config.epsilon, "epsilon_high": config.epsilon_high or config.epsilon}
    value, gradient, _ = stand_in.grpo_loss(batch, config.loss_type, config.importance_sampling_level, **changed)
    torch.testing.assert_close((value, gradient), ours, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["standardized", "batch_standardized", "centered"])
def test_an_exported_advantage_is_the_advantage_but_for_what_the_export_says(trl, name):
    settings = toylm.GrpoSettings(advantage=name, ddof=1, std_eps=1e-4, group_size=4)
    exported = export(settings)
    assert not any("deviation" in difference for difference in exported.differences)
    rewards = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theirs = stand_in.advantages(rewards[None], scale=exported.keywords["scale_rewards"])
    # The factor n/(n − 1) of TRL's deviation is computed in float32.
    torch.testing.assert_close(theirs, settings.advantages(rewards), rtol=1e-6, atol=1e-6)


def test_the_difference_in_the_deviation_is_the_factor_it_names():
    settings = toylm.GrpoSettings(group_size=4, std_eps=0.0)
    found = " ".join(export(settings).differences)
    rewards = torch.tensor([[0.0, 1.0, 4.0, 7.0]], dtype=torch.float64)
    ratio = advantages.standardized(rewards, std_eps=0.0, ddof=1) / advantages.standardized(rewards, std_eps=0.0)
    assert f"{ratio[0, 0].item():.4f} times" in found
    assert "adds 1e-4 to the deviation, not 0" in found and "float64" in found
    batch = toylm.GrpoSettings(task=Addition(), group_size=4, prompts_per_step=4, advantage="batch_standardized")
    assert f"{(15 / 16) ** 0.5:.4f} times" in " ".join(export(batch).differences)


def test_the_steps_and_the_batch_are_counted_as_trl_counts_them(trl, tmp_path):
    settings = toylm.GrpoSettings(task=Addition(), prompts_per_step=6, group_size=4, steps=10, inner_updates=3)
    config = config_of(trl, export(settings), tmp_path)
    assert config.max_steps == 30 and config.num_iterations == 3
    assert config.generation_batch_size == 24 and config.num_generations == 4
    assert export(settings, processes=8).keywords["per_device_train_batch_size"] == 3


def test_changed_lists_what_is_not_trls_default(trl):
    changed = export(toylm.GrpoSettings()).changed()
    assert changed["loss_type"] == ("dapo", "grpo") and changed["max_grad_norm"] == (1.0, 0.0)
    assert "temperature" not in changed


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"loss": "reinforce", "beta": 0.0}, "loss must be one that TRL knows too.*got reinforce"),
        ({"loss": lambda *_, beta: None}, "loss must be one that TRL knows too"),
        ({"advantage": "leave_one_out"}, "advantage must be .*got leave_one_out"),
        ({"advantage": "batch_centered"}, "advantage must be .*got batch_centered"),
        ({"kl_in_reward": True}, "beta must be 0 with kl_in_reward=True.*got 0.04"),
        ({"loss": "dr_grpo", "loss_options": {"max_length": 7}}, "max_length must be the task's 2.*got 7"),
    ],
)
def test_what_trl_has_no_keyword_for_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        export(toylm.GrpoSettings(**changes))


def test_a_critic_and_processes_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"advantage must be .*got a critic"):
        export(toylm.PpoSettings(beta=0.0))
    with pytest.raises(ValueError, match="processes must divide the 16 completions of a step; got 3"):
        export(toylm.GrpoSettings(), processes=3)
    with pytest.raises(ValueError, match="processes must be a whole number"):
        export(toylm.GrpoSettings(), processes=0)


def test_every_option_of_the_family_has_a_field_in_the_configuration(trl):
    fields = {field.name for field in dataclasses.fields(trl.grpo_config)}
    assert set(CONFIG_NAME.values()) <= fields


# ---------------------------------------------------------------- a real run

RUNS = {
    "as in the chapter": tiny_run.SETTINGS,
    "one update, no reference, tokens of the batch": dataclasses.replace(
        tiny_run.SETTINGS, loss="dapo", beta=0.0, inner_updates=1, advantage="centered", steps=2, temperature=0.7
    ),
    "one ratio a sequence, weighted penalty": dataclasses.replace(
        tiny_run.SETTINGS,
        loss=grpo.gspo_loss,
        advantage="batch_standardized",
        steps=2,
        loss_options={"kl_ratio_weighted": True},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_labsrc_recomputes_what_trl_logs(trl, name):
    settings = RUNS[name]
    run = tiny_run.tiny_run(settings)
    assert len(run.logged) == len(run.ours) == settings.steps * settings.inner_updates
    gaps = run.largest_gaps()
    assert {"loss", "entropy", "reward", "reward_std", "completions/mean_length"} <= set(gaps)
    assert ("kl" in gaps) == (settings.beta > 0)
    assert all(gap < LOGGED for gap in gaps.values()), gaps
    assert run.largest_advantage_gap < LOGGED
    # The comparison is of a run in which something happened.
    assert run.before != run.after
    assert any(abs(row["loss"]) > 1e-3 for row in run.logged)
    assert len({row["completions/mean_length"] for row in run.ours if "completions/mean_length" in row}) > 1


def test_a_wrong_formula_would_show(trl, monkeypatch):
    monkeypatch.setattr(tiny_run, "TRL_SCALE", {"ddof": 0, "std_eps": 1e-4})
    run = tiny_run.tiny_run(dataclasses.replace(tiny_run.SETTINGS, steps=1))
    assert run.largest_advantage_gap > 100 * LOGGED


def test_the_run_leaves_the_callers_dtype_and_generator_alone(trl):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    tiny_run.tiny_run(dataclasses.replace(tiny_run.SETTINGS, steps=1))
    assert torch.equal(torch.rand(1), expected) and torch.get_default_dtype() == expected.dtype


def test_a_task_without_eos_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match="task must have an eos_token"):
        tiny_llama.save(tmp_path, FirstToken(), toylm.ModelSettings())
    with pytest.raises(ValueError, match="task must be a FirstToken"):
        tiny_run.tiny_run(toylm.GrpoSettings(task=LengthBonus()))


def test_two_processes_launched_by_accelerate_agree_with_labsrc_too(trl, tmp_path):
    program = shutil.which("accelerate", path=sysconfig.get_path("scripts"))
    command = [program, "launch", "--multi_gpu", "--num_processes", "2", "-m", "labsrc.trl_bridge.tiny_run"]
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "processes 2, optimiser steps 12" in done.stdout
    assert "advantages" in done.stdout
