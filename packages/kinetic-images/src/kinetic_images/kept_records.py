"""Small records on this machine: private files of JSON, whose loss costs work and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinetic_payload.files.private import make_folder, read_private, write_private


def find_record(path: Path) -> dict[str, Any] | None:
    """Return the record at *path*, or None if there is none that can be read."""
    try:
        record = json.loads(read_private(path))
        mark_used(path)
    except (FileNotFoundError, PermissionError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def keep_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write *record* to *path*, in place of an earlier one."""
    make_folder(path.parent)
    write_private(path, json.dumps(record).encode())


def mark_used(path: Path) -> None:
    """Reset the age of *path*, by which unused files are found."""
    with suppress(OSError):
        os.utime(path)
