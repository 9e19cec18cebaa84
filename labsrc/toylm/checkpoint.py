"""Stop and resume: a run's whole state in one file that is either complete or absent.

The file is a line that says what it is, a line with the SHA-256 of the rest, and the rest: settings and state as torch
saves them. The hash is checked before anything is read, and only plain data and tensors are ever loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import torch

from labsrc.toylm import atomic

HEADER = b"labsrc checkpoint 1\n"


def save(path: Path | str, state: dict[str, Any], *, settings: dict[str, Any]) -> None:
    """Write state and settings to `path` in one step, replacing what was there.

    settings: plain data, as `records.settings_to_dict` gives it.
    """
    buffer = io.BytesIO()
    torch.save({"settings": json.dumps(settings, sort_keys=True), "state": state}, buffer)
    body = buffer.getvalue()
    atomic.write_bytes(path, HEADER + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load(path: Path | str, *, settings: dict[str, Any]) -> dict[str, Any]:
    """The state in `path`. Raises ValueError for a foreign or damaged file, or one of a run with other settings."""
    content = Path(path).read_bytes()
    if not content.startswith(HEADER):
        raise ValueError(f"{str(path)!r} must be a labsrc checkpoint; it begins with {content[:20]!r}")
    digest, _, body = content[len(HEADER) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError(f"{str(path)!r} must be a whole checkpoint; its content does not match its SHA-256: damaged")
    try:
        saved = torch.load(io.BytesIO(body), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise ValueError(f"{str(path)!r} must be a checkpoint this torch can read; got: {error}") from error
    stored, wanted = json.loads(saved["settings"]), json.loads(json.dumps(settings))
    different = sorted(key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key))
    if different:
        changes = ", ".join(f"{key}: {stored.get(key)!r} there, {wanted.get(key)!r} here" for key in different)
        raise ValueError(f"{str(path)!r} must belong to a run with these settings; different are {changes}")
    return saved["state"]
