"""What TRL does when nothing is said: the defaults of its configurations, read from their fields."""

from __future__ import annotations

import dataclasses
from typing import Any


def field_defaults(config: type) -> dict[str, Any]:
    """The default of every field of a configuration class that has one, as declared.

    config: a dataclass, say `library.load().grpo_config`. None is made, so what TRL only decides then (bf16 by the
    device, epsilon_high by epsilon) still reads None here. Raises ValueError for anything else.
    """
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise ValueError(f"config must be a dataclass such as GRPOConfig; got {config!r}")
    return {field.name: _default(field) for field in dataclasses.fields(config) if _has_default(field)}


def _has_default(field: dataclasses.Field) -> bool:
    return not (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)


def _default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
