"""Writing a file so that no reader ever meets half of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_bytes(path: Path | str, content: bytes) -> None:
    """Replace `path` by `content` in one step: a crash leaves the old file or the new one, never a part.

    The content is written beside the file, flushed to the disk, then renamed over it. A process killed on the way
    leaves that neighbour, `.NAME.part`; the next write takes it over. Raises ValueError for a folder that does not
    exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path must be in a folder that exists; got {str(path)!r}")
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    # The rename itself is on the disk only when the folder is. Windows cannot open a folder, and needs no flush.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
