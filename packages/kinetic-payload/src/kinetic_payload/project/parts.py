"""Contexts in parts: archives named by their contents, so that a change of a project uploads only the parts it is in.

A list of the parts, named by the digest of the tree, is written after all of them. Trees of a few megabytes are not split.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from kinetic_payload.digests import TreeEntry, encoded, tree_digest
from kinetic_payload.errors import ObjectNotFoundError, PreconditionFailedError, RecordError
from kinetic_payload.layout import PARTS, context_part, context_parts, kind_of
from kinetic_payload.limits import read_record
from kinetic_payload.progress import Scaled, TrackProgress
from kinetic_payload.stores.store import ABSENT, ObjectInfo, Store
from kinetic_payload.threads import Executor, parallel_map

if TYPE_CHECKING:
    from kinetic_payload.project.snapshot import Snapshot

MOST: Final = 1_900_000
"""Bytes of content of a part; a larger file is a part of its own. Larger trees have larger parts, and not more."""
_SCALE: Final = 128
"""Trees with this many full parts get parts of twice the size."""
_ENTRY_COST: Final = 512
_STREAMS: Final = 8
_PACKERS: Final = 2
"""Parts packed at once. One uses all cores, except at its beginning and end."""


class Part(NamedTuple):
    """An archive with some entries of a tree."""

    name: str
    entries: Sequence[TreeEntry]

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


def split(entries: Sequence[TreeEntry], scope: str) -> list[Part]:
    """Split a tree, sorted by path. The names of the parts begin with *scope*.

    What is too large is split near its middle, before the path with the smallest hash there, and so are its pieces. So
    a change seldom moves a split other than those of its own part.
    """
    most = MOST
    while sum(entry.size + _ENTRY_COST for entry in entries) > _SCALE * most:
        most *= 2
    parts = [[entry] for entry in entries if entry.size + _ENTRY_COST > most]
    small = [entry for entry in entries if entry.size + _ENTRY_COST <= most]
    hashes = [zlib.crc32(encoded(entry.path)) for entry in small]
    before = [0, *accumulate(entry.size + _ENTRY_COST for entry in small)]
    todo = [(0, len(small))] if small else []
    while todo:
        start, end = todo.pop()
        size = before[end] - before[start]
        if size <= most:
            parts.append(small[start:end])
            continue
        first = bisect_left(before, before[start] + size // 4, start + 1, end - 1)
        last = bisect_right(before, before[end] - size // 4, first + 1, end)
        middle = min(range(first, last), key=hashes.__getitem__)
        todo += [(start, middle), (middle, end)]
    return [Part(context_part(f"{scope}/{tree_digest(part)}"), part) for part in parts]


def ensure_parts(store: Store, snapshot: Snapshot, oldest: float, track: TrackProgress) -> int:
    """Upload the parts of *snapshot* that the store does not have, and their list; return the bytes of content sent.

    Each use looks for every part, and resets the age of those that are older than *oldest*. So a part that somebody deleted is
    uploaded again, and none expires soon after a submit that uses it.
    """
    # Parts of projects of one name are listed together: a bucket may have many others.
    scope = hashlib.sha256(encoded(snapshot.root.name)).hexdigest()[:8]
    name = context_parts(snapshot.digest)

    def listed() -> list[str] | None:
        with suppress(ObjectNotFoundError, RecordError):
            parts, written_at = parsed_parts(read_record(store, name), snapshot.digest)
            return parts if written_at >= oldest else None
        return None

    with Executor(store.concurrency) as executor:
        reading = executor.submit(listed)
        found = {info.name: info for info in store.list(f"{PARTS}{scope}/")}
        wanted = reading.result()
    young = {info.name for info in found.values() if info.updated >= oldest}
    if wanted is not None and young.issuperset(wanted):
        return 0
    parts = split(snapshot.entries, scope)
    missing = [part for part in parts if part.name not in found]
    old = [part for part in parts if part.name in found and part.name not in young]

    def is_gone(part: Part) -> bool:
        info: ObjectInfo = found[part.name]
        with suppress(PreconditionFailedError):  # Another client renewed it.
            return store.renew(part.name, if_generation=info.generation) is None
        return False

    gone = parallel_map(is_gone, old, threads=store.concurrency)
    missing += [part for part, away in zip(old, gone, strict=True) if away]
    size = sum(part.size for part in missing)
    packing = threading.Semaphore(_PACKERS)
    with track("uploading the project", size) as advance:

        def send(part: Part) -> None:
            progress = Scaled(advance, part.size)
            with (
                suppress(PreconditionFailedError),  # Another client uploaded it meanwhile.
                # The archive is sent when this block ends, so its size is known by then.
                store.writer(part.name, if_generation=ABSENT, progress=progress) as stream,
                packing,
            ):
                progress.whole = snapshot.write(stream, part.entries)

        parallel_map(send, missing, threads=min(store.concurrency, _STREAMS))
    names = [part.name for part in parts]
    record = {"version": 1, "digest": snapshot.digest, "parts": names, "written_at": store.now()}
    store.write(name, json.dumps(record).encode())
    return size


def parsed_parts(data: bytes, digest: str) -> tuple[list[str], float]:
    """Return the names of the parts that *data*, the list for the tree *digest*, names, and when it was written.

    Raises:
        RecordError: It is no such list.
    """
    try:
        record = json.loads(data)
        parts, written_at = record["parts"], float(record["written_at"])
        kinds = {(kind_of(name) or ("",))[0] for name in parts}
        if record["digest"] == digest and kinds == {"part"} and len({*parts}) == len(parts):
            return parts, written_at
    except (ValueError, RecursionError, TypeError, KeyError, OverflowError):
        pass
    raise RecordError(f"{context_parts(digest)} is no list of the parts of this project.")
