"""The record of a run: what was asked, what happened in every step, what it ran on. Plain data, one JSON file."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.resources
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch

from labsrc.toylm import atomic, losses
from labsrc.toylm.reward_model import LearnedReward
from labsrc.toylm.settings import (
    DpoSettings,
    GrpoSettings,
    ModelSettings,
    PpoSettings,
    ReinforceSettings,
    RlooSettings,
    StartSettings,
    TrainingSettings,
)
from labsrc.toylm.tasks import Addition, FirstToken, LengthBonus, Task
from labsrc.toylm.trainer import Trainer

FORMAT = "labsrc-record-1"

SETTINGS: Mapping[str, type[TrainingSettings]] = {
    kind.method: kind for kind in (GrpoSettings, RlooSettings, ReinforceSettings, PpoSettings, DpoSettings)
}
TASKS: Mapping[str, type] = {kind.name: kind for kind in (FirstToken, LengthBonus, Addition, LearnedReward)}


@dataclasses.dataclass(frozen=True)
class Record:
    """One run. `groups` has an entry a step with everything needed to recompute it, `monitors` the dashboard's numbers.

    before and after: `training.evaluate`; cost: `trainer.Cost`; environment: Python, torch, NumPy and platform;
    sources: SHA-256 of every source file of labsrc; exit_status 0 for a run that came to its end.
    """

    format: str
    method: str
    settings: dict[str, Any]
    steps_done: int
    groups: list[dict[str, Any]]
    monitors: list[dict[str, float | None]]
    before: dict[str, float | None]
    after: dict[str, float | None]
    reference_has_gradients: bool
    cost: dict[str, int]
    environment: dict[str, str]
    sources: dict[str, str]
    exit_status: int
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the file."""
        return {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}

    def save(self, path: Path | str) -> None:
        """Write the record to `path` as JSON, atomically. Raises ValueError if it does not fit its own schema."""
        data = self.to_dict()
        check_schema(data)
        atomic.write_bytes(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def make_record(trainer: Trainer, **rest: Any) -> Record:
    """The record of a trainer as far as it has come; `rest` is before, after, exit_status and error."""
    return Record(
        format=FORMAT,
        method=trainer.settings.method,
        settings=settings_to_dict(trainer.settings),
        steps_done=trainer.steps_done,
        groups=trainer.groups,
        monitors=trainer.monitors,
        reference_has_gradients=any(
            weight.grad is not None or weight.requires_grad for weight in trainer.reference.parameters()
        ),
        cost=dataclasses.asdict(trainer.cost),
        environment=environment(),
        sources=source_hashes(),
        **rest,
    )


def load(path: Path | str) -> Record:
    """The record in a file. Raises ValueError for a file that is no JSON or does not fit the schema."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(path)!r} must be a JSON record; {error}") from error
    check_schema(data)
    return Record(**data)


def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    return json.loads(importlib.resources.files("labsrc.toylm").joinpath("record.schema.json").read_text("utf-8"))


def check_schema(data: Any) -> None:
    """Raise ValueError, naming the place, for data that does not fit the schema."""
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(data))
    if error is not None:
        raise ValueError(f"record must fit record.schema.json; at {error.json_path}: {error.message[:200]}")


def environment() -> dict[str, str]:
    """What the run's last digits may depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "labsrc": importlib.metadata.version("labsrc"),
    }


def source_hashes() -> dict[str, str]:
    """SHA-256 of every source file of labsrc that a run can reach, by path inside the package."""
    root = Path(str(importlib.resources.files("labsrc")))
    files = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in ("labs", "plots.py")]
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def settings_to_dict(settings: TrainingSettings) -> dict[str, Any]:
    """Settings as plain data; functions by name, the task with its name."""
    return {entry.name: _plain(getattr(settings, entry.name), entry.name) for entry in dataclasses.fields(settings)} | {
        "method": settings.method
    }


def _plain(value: Any, name: str) -> Any:
    if name in ("loss", "advantage"):
        return losses.name_of(losses.LOSSES if name == "loss" else losses.ADVANTAGES, value)
    if dataclasses.is_dataclass(value):
        data = {entry.name: _plain(getattr(value, entry.name), entry.name) for entry in dataclasses.fields(value)}
        return data | ({"name": value.name} if hasattr(value, "name") else {})
    if isinstance(value, tuple | list):
        return [_plain(item, "") for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def settings_from_dict(data: Mapping[str, Any]) -> TrainingSettings:
    """The settings of a record. Raises ValueError for an unknown method, task, loss or advantage."""
    data = dict(data)
    kind = _known("method", SETTINGS, data.pop("method", None))
    readers: dict[str, Callable] = {"task": task_from_dict, "model": lambda value: ModelSettings(**value)}
    readers |= {"start": lambda value: None if value is None else StartSettings(**value), "pairs": _as_tuples}
    try:
        return kind(**{name: readers.get(name, lambda value: value)(value) for name, value in data.items()})
    except TypeError as error:
        raise ValueError(f"settings must be those of {kind.__name__}; {error}") from error


def task_from_dict(data: Mapping[str, Any]) -> Task:
    """The task of a record."""
    data = dict(data)
    kind = _known("task", TASKS, data.pop("name", None))
    if "task" in data:
        data["task"] = task_from_dict(data["task"])
    if "model" in data:
        data["model"] = ModelSettings(**data["model"])
    return kind(**{name: _as_tuples(value) for name, value in data.items()})


def _known(what: str, table: Mapping[str, type], name: Any) -> type:
    if name not in table:
        raise ValueError(f"{what} must be one of {sorted(table)}; got {name!r}")
    return table[name]


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value
