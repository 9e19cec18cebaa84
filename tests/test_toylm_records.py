import copy
import json

import pytest

from labsrc import toylm
from labsrc.toylm import atomic, records, training, verify

SETTINGS = {
    "grpo": toylm.GrpoSettings(lr=0.2, seed=3),
    "grpo with ends": toylm.GrpoSettings(
        task=toylm.FirstToken(eos_token=2, max_new_tokens=4, prompts=((1, 3), (2, 5))), prompts_per_step=2, steps=4
    ),
    "rloo": toylm.RlooSettings(lr=0.1),
    "reinforce": toylm.ReinforceSettings(steps=3),
    "ppo": toylm.PpoSettings(steps=4, task=toylm.FirstToken(eos_token=2, max_new_tokens=3)),
    "dpo": toylm.DpoSettings(steps=5),
    "dpo sampled": toylm.DpoSettings(
        pairs=(), sampled_pairs=6, batch_size=3, steps=3, task=toylm.FirstToken(eos_token=2, max_new_tokens=3)
    ),
    "learned": toylm.GrpoSettings(task=toylm.LearnedReward(pairs=32, steps=5), steps=2),
}


@pytest.fixture(scope="module")
def made():
    return {name: toylm.run(settings) for name, settings in SETTINGS.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_record_survives_the_file_and_verifies(name, made, tmp_path):
    made[name].save(tmp_path / "run.json")
    record = records.load(tmp_path / "run.json")
    assert record == made[name]
    found = verify.verify(record)
    assert found.agrees, found.disagreements
    assert found.notes == []
    assert found.checked >= 10


@pytest.mark.parametrize("name", ["grpo", "ppo", "dpo sampled"])
def test_running_the_settings_again_gives_the_record(name, made):
    found = verify.verify_by_rerun(made[name])
    assert found.agrees, found.disagreements
    assert found.checked > 100


def nudge(path):
    """Change the number at `path` in a record's data."""

    def change(data):
        *way, last = path
        for key in way:
            data = data[key]
        data[last] = data[last] + 1e-6 if isinstance(data[last], float) else not data[last]

    return change


@pytest.mark.parametrize(
    ("name", "change", "place"),
    [
        ("grpo", nudge(["groups", 2, "rewards", 0, 1]), "groups[2].rewards"),
        ("grpo", nudge(["groups", 2, "advantages", 0, 1]), "groups[2].advantages"),
        ("grpo", nudge(["groups", 2, "updates", 1, "loss"]), "groups[2].updates[1].loss"),
        ("grpo", nudge(["groups", 4, "updates", 1, "logp", 3, 0]), "groups[4].updates[1].loss"),
        ("grpo", nudge(["groups", 4, "logp_ref", 3, 0]), "groups[4].updates[0].loss"),
        ("grpo", nudge(["groups", 4, "logp_old", 3, 0]), "groups[4]: the first update's ratio is 1"),
        ("grpo", nudge(["groups", 1, "zero_variance", 0]), "groups[1].zero_variance"),
        ("grpo", nudge(["monitors", 1, "reward_mean"]), "monitors of groups[1].reward_mean"),
        ("grpo", lambda data: data["groups"].pop(), "groups: number of steps"),
        ("grpo", lambda data: data["groups"][0]["completions"][0].pop(), "groups[0]: cannot be recomputed"),
        ("grpo", lambda data: data.update(steps_done=7), "monitors: number of steps"),
        ("rloo", nudge(["groups", 5, "logp_ref", 3, 0]), "groups[5].advantages"),
        ("ppo", nudge(["groups", 1, "values", 3, 0]), "groups[1].advantages"),
        ("ppo", nudge(["groups", 1, "updates", 1, "values", 3, 0]), "groups[1].updates[1].value_loss"),
        ("ppo", nudge(["groups", 1, "updates", 0, "value_loss"]), "groups[1].updates[0].value_loss"),
        ("dpo", nudge(["groups", 1, "loss"]), "groups[1].loss"),
        ("dpo", nudge(["groups", 1, "logp_rejected", 0, 1]), "groups[1].loss"),
        ("dpo", lambda data: data["groups"][0]["chosen"][0].reverse(), "groups[0]: pairs"),
    ],
)
def test_a_record_that_was_changed_is_found_out(name, change, place, made):
    data = copy.deepcopy(made[name].to_dict())
    change(data)
    records.check_schema(data)
    found = verify.verify(records.Record(**data))
    assert not found.agrees
    assert any(line.startswith(place) for line in found.disagreements), found.disagreements


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("cost"),
        lambda data: data.update(method="kto"),
        lambda data: data.update(colour="red"),
        lambda data: data["groups"][0].pop("logp_old"),
        lambda data: data["groups"][0]["updates"].clear(),
        lambda data: data["groups"][0]["completions"][0].append(-1),
        lambda data: data["groups"][0].update(rewards="high"),
        lambda data: data["settings"].pop("seed"),
        lambda data: data.update(reference_has_gradients=True),
        lambda data: data["sources"].update({"kl.py": "abc"}),
    ],
)
def test_data_that_does_not_fit_the_schema_is_refused(change, made, tmp_path):
    data = copy.deepcopy(made["grpo"].to_dict())
    change(data)
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"record must fit record\.schema\.json; at \$"):
        records.load(tmp_path / "bad.json")


def test_a_file_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "bad.json").write_bytes(b"\xff\x00 not json")
    with pytest.raises(ValueError, match=r"bad\.json' must be a JSON record"):
        records.load(tmp_path / "bad.json")


def test_a_record_names_every_source_file_and_notes_a_changed_one(made):
    record = made["grpo"]
    assert {"kl.py", "grpo.py", "toylm/model.py"} <= record.sources.keys()
    changed = records.Record(**{**record.to_dict(), "sources": record.sources | {"kl.py": "0" * 64}})
    found = verify.verify(changed)
    assert found.agrees and found.notes == ["1 source files are not those of the run: kl.py"]


def test_a_run_without_kept_steps_says_that_nothing_was_recomputed():
    trainer = toylm.train(toylm.GrpoSettings(steps=2), keep_groups=False)
    found = verify.verify(training.record_of(trainer))
    assert found.agrees
    assert found.notes == [
        "the record holds no steps, only monitors: rewards, advantages and losses were not recomputed"
    ]


def test_a_plain_run_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toylm.run_grpo(toylm.GrpoSettings(steps=1))
    toylm.run_dpo(toylm.DpoSettings(steps=1))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "run.json"
    atomic.write_bytes(target, b"old")

    def fail(*_):
        raise OSError("disk full")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(f"os.{step}", fail)
            with pytest.raises(OSError, match="disk full"):
                atomic.write_bytes(target, b"new")
        assert target.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [target]
    atomic.write_bytes(target, b"new")
    assert target.read_bytes() == b"new"


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match="path must be in a folder that exists"):
        atomic.write_bytes(tmp_path / "nowhere" / "run.json", b"")
