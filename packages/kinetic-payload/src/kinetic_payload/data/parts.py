"""Parts of local `Data` into a store, every byte held against the digest that names it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kinetic_payload.archives.write import pack
from kinetic_payload.data.marker import Part, Sizes
from kinetic_payload.digests import FileHasher, TreeEntry, open_regular
from kinetic_payload.errors import (
    DataError,
    IntegrityError,
    PreconditionFailedError,
    StoreError,
    TreeChangedError,
)
from kinetic_payload.progress import Advance, Reports, Scaled
from kinetic_payload.project.hashing import FileCheck
from kinetic_payload.project.snapshot import Snapshot
from kinetic_payload.project.stat_cache import stamp_of
from kinetic_payload.stores.store import ABSENT, ObjectInfo, Store
from kinetic_payload.threads import parallel_map

_STREAMS: Final = 8
"""Large objects under way at once: more would cost memory and disk, and gain nothing."""
_PACKERS: Final = 2
"""Packs written at once. One uses all cores, but for its beginning and its end."""


class Sending:
    """The parts of one tree on their way into a store."""

    def __init__(
        self, store: Store, tree: Snapshot, there: Mapping[str, ObjectInfo], sizes: Sizes
    ) -> None:
        self._store = store
        self._tree = tree
        self._there = there
        self._sizes = sizes
        self._packing = threading.Semaphore(_PACKERS)
        self.stored: dict[str, int] = {}
        """The size of every object that was sent, by its name."""

    def send(self, parts: Sequence[Part], reports: Reports) -> None:
        """Send *parts*, as many at once as the store is worth.

        Raises:
            TreeChangedError: A file is not what it was when its digest was taken.
        """
        if not parts:
            return
        small = [part for part in parts if self._fits_in_memory(part)]
        streamed = [part for part in parts if not self._fits_in_memory(part)]
        # The longest first, so that none is left to run alone in the end.
        streamed.sort(key=lambda part: part.size, reverse=True)
        most = self._store.concurrency
        with reports("uploading data", sum(part.size for part in parts)) as advance:
            parallel_map(lambda part: self._send_one(part, advance), small, threads=most)
            most = min(most, _STREAMS)
            parallel_map(lambda part: self._send_one(part, advance), streamed, threads=most)

    def _fits_in_memory(self, part: Part) -> bool:
        return not part.is_pack and part.size <= self._sizes.in_memory

    def _send_one(self, part: Part, advance: Advance) -> None:
        found = self._there.get(part.name)
        generation = found.generation if found else ABSENT
        try:
            if part.is_pack:
                size = self._send_pack(part, generation, advance)
            elif self._fits_in_memory(part):
                size = self._send_small(part, generation, advance)
            else:
                size = self._send_large(part, generation, advance)
        except PreconditionFailedError:
            # Somebody else uploaded the same meanwhile, or healed it.
            there = self._store.stat(part.name)
            if there is None:
                raise DataError(
                    f"{part.name} disappeared from {self._store.location} while it was uploaded.",
                    hint="Is something else cleaning that store up?",
                ) from None
            size = there.size
            advance(part.size)
        self.stored[part.name] = size

    def _send_pack(self, part: Part, generation: int, advance: Advance) -> int:
        progress = Scaled(advance, part.size)
        writer = self._store.writer(part.name, if_generation=generation, progress=progress)
        # Packing is over when what was written is sent: that happens on the way out.
        with writer as stream, self._packing:
            progress.whole = pack(stream, self._tree.root, part.entries)
        return progress.whole

    def _send_small(self, part: Part, generation: int, advance: Advance) -> int:
        [entry] = part.entries
        data = self._read(entry)
        hasher = FileHasher(entry.path)
        hasher.update(data)
        if hasher.hexdigest() != entry.digest:
            raise _changed(entry)
        self._store.write(part.name, data, if_generation=generation)
        advance(part.size)
        return len(data)

    def _read(self, entry: TreeEntry) -> bytes:
        try:
            with os.fdopen(open_regular(f"{self._tree.root}/{entry.path}"), "rb") as stream:
                return stream.read(entry.size)
        except OSError as error:
            raise _changed(entry) from error

    def _send_large(self, part: Part, generation: int, advance: Advance) -> int:
        """Send a file that the store itself reads; what it sends is held against the digest."""
        [entry] = part.entries
        path = self._tree.root / entry.path
        before = _stamp(path, entry.size)
        if before is None:
            raise _changed(entry)
        try:
            info = self._store.upload(
                part.name,
                path,
                if_generation=generation,
                progress=advance,
                check=FileCheck(entry, _changed(entry)),
            )
        except (StoreError, IntegrityError, OSError) as error:
            if _stamp(path, entry.size) != before:
                raise _changed(entry) from error  # Which is why: it became shorter, for instance.
            raise
        return info.size


def _stamp(path: Path, size: int) -> str | None:
    """Return the stamp of the regular file *path* of *size* bytes, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    expected = stat.S_ISREG(status.st_mode) and status.st_size == size
    return stamp_of(status) if expected else None


def _changed(entry: TreeEntry) -> TreeChangedError:
    return TreeChangedError(
        f"{entry.path!r} changed while it was being uploaded.",
        hint="Submit again when nothing writes to it any more.",
    )
