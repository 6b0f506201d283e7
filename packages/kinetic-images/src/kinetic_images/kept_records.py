"""Small records of JSON on two levels: private files of this machine, and objects in a bucket that a team shares.

The loss of a record costs work, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetic_payload.errors import (
    BucketNotFoundError,
    ObjectNotFoundError,
    PreconditionFailedError,
    SignatureError,
)
from kinetic_payload.files.private import make_folder, read_private, write_private
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.stores.store import ABSENT, Store


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


@dataclass(frozen=True)
class SharedRecords:
    """Records in *store*. If its bucket does not exist, there are none, and none are kept.

    With the key of *signing*, write access to the bucket is not enough to forge one: a record that is not
    signed with it counts as missing.
    """

    store: Store
    signing: Signing = UNSIGNED

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the record *name*, or None if there is none that can be relied on.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            data = self.store.read(name)
            self.signing.verify(data, name)
            record = json.loads(data)
        except (BucketNotFoundError, ObjectNotFoundError, SignatureError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def offer(self, name: str, record: dict[str, Any], *, replace: bool = False) -> dict[str, Any]:
        """Write *record* as *name* unless there is one; return what others find.

        *replace* overwrites what there is.

        Raises:
            StoreError: The store cannot be written.
        """
        with suppress(BucketNotFoundError):
            info = self.store.stat(name)
            found = None if replace or info is None else self.find(name)
            if found is not None:
                return found
            data = self.signing.sign(json.dumps(record, sort_keys=True).encode(), name)
            try:
                self.store.write(name, data, if_generation=info.generation if info else ABSENT)
            except PreconditionFailedError:  # Another process was faster.
                return self.find(name) or record
        return record
