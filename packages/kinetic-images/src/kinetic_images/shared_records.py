"""Small records that several machines share: objects in a bucket, signed if there is a key."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kinetic_payload.errors import (
    BucketNotFoundError,
    ObjectNotFoundError,
    PreconditionFailedError,
    SignatureError,
)
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.stores.store import ABSENT, Store


@dataclass(frozen=True)
class SharedRecords:
    """Records of JSON in *store*. If its bucket does not exist, there are none, and none are kept.

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
        """Write *record* as *name* unless there is one; return the record that others find.

        *replace* overwrites an existing record.

        Raises:
            StoreError: The store cannot be written.
        """
        data = self.signing.sign(json.dumps(record, sort_keys=True).encode(), name)
        with suppress(BucketNotFoundError):
            if not replace:
                try:
                    self.store.write(name, data, if_generation=ABSENT)
                    return record
                except PreconditionFailedError:
                    found = self.find(name)
                    if found is not None:
                        return found
            self.store.write(
                name, data
            )  # In place of one that is to be replaced, or cannot be relied on.
        return record

    def supersede(
        self, name: str, old: dict[str, Any] | None, new: dict[str, Any]
    ) -> dict[str, Any]:
        """Write *new* as *name* in place of *old*; return the record that others find.

        That is not *new* if another process has replaced *old* by then.

        Raises:
            StoreError: The store cannot be written.
        """
        with suppress(BucketNotFoundError):
            info = self.store.stat(name)
            found = self.find(name)
            if found is not None and found != old:
                return found
            data = self.signing.sign(json.dumps(new, sort_keys=True).encode(), name)
            try:
                self.store.write(name, data, if_generation=info.generation if info else ABSENT)
            except PreconditionFailedError:
                return self.find(name) or new
        return new
