"""Local `Data` into a store, once ever: what is there is kept, renewed and vouched for.

Objects are named by the digest of what they hold and appear as a whole, so whatever is there is
good: of an upload that was interrupted, of one that runs beside this one, of years ago.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_payload.archives.write import write_archive
from kinetic_payload.data.marker import (
    SIZES,
    Listed,
    Marker,
    Part,
    Sizes,
    encode_marker,
    mounted_parts,
    packed_parts,
    parse_marker,
    unmountable,
)
from kinetic_payload.digests import FileHasher, TreeEntry, open_regular
from kinetic_payload.errors import (
    DataError,
    FutureRecordError,
    IntegrityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
    StoreError,
    TreeChangedError,
)
from kinetic_payload.layout import data_files_prefix, data_marker, data_prefix
from kinetic_payload.limits import read_record
from kinetic_payload.progress import Advance, Scaled, TrackProgress, silent
from kinetic_payload.project.context import REFRESH_AGE
from kinetic_payload.project.hashing import FileCheck
from kinetic_payload.project.snapshot import Snapshot, tree_of
from kinetic_payload.project.stat_cache import StatCache, stamp_of
from kinetic_payload.project.tree import EXCLUDED, SYSTEM_FILE, LeftOut
from kinetic_payload.stores.names import MAX_NAME
from kinetic_payload.stores.store import ABSENT, Mountable, ObjectInfo, Store
from kinetic_payload.threads import parallel_map

_SHOWN: Final = 10
"""Paths that a message names, at most."""
_STREAMS: Final = 8
"""Large objects under way at once: more would cost memory and disk, and gain nothing."""
_PACKERS: Final = 2
"""Packs written at once. One uses all cores, but for its beginning and its end."""


def ensure_data(
    store: Store,
    path: Path,
    *,
    mounted: bool = False,
    cache: StatCache | None = None,
    track: TrackProgress = silent,
    warn: Callable[[str], None] | None = None,
    exclude: Iterable[Path] = (),
    sizes: Sizes = SIZES,
) -> str:
    """Upload the file or folder at *path* unless the store has it, and return its digest.

    Any number of uploads may run at once, and one that was interrupted goes on where it was. What is
    there costs reading its marker and one list; what got old there is made young again.

    Args:
        mounted: Every file as an object by its path, to be mounted; else packed, to be downloaded.
        warn: Told of what is in it and does not travel, if anything.
        exclude: Paths that do not travel with it, of which nobody is told.
        sizes: Where files are parted; all clients of one store must agree.

    Raises:
        DataError: It cannot be read, or not be mounted; nothing was sent.
        TreeChangedError: A file changed meanwhile; the message names it.
    """
    tree = tree_of(path, cache, exclude=exclude, track=track)
    left_out = [one for one in tree.left_out if one.rule not in (EXCLUDED, SYSTEM_FILE)]
    if warn is not None and left_out:
        warn(_sentence(path, left_out))
    wanted = _mounted(store, path, tree) if mounted else _packed(tree, sizes)
    marker, there = _seen(store, wanted)
    missing, kept = _parted(wanted, there, marker)
    oldest = store.now() - REFRESH_AGE
    old = [part for part in kept if there[part.name].updated < oldest]
    stored = {part.name: there[part.name].size for part in kept}
    young = marker is not None and marker.written_at >= oldest
    if young and not missing and not old and _is_vouched_for(wanted, there, marker, stored):
        return tree.digest
    for part in _renew(store, old, there):
        del there[part.name]
        missing.append(part)
    _mark(store, wanted)
    sending = _Sending(store, tree, there, sizes)
    sending.send(missing, track)
    vouching = wanted.marker(stored | sending.stored, written_at=store.now())
    store.write(data_marker(tree.digest, mounted=mounted), encode_marker(vouching))
    return tree.digest


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A tree in the form in which it is to be in a store."""

    tree: Snapshot
    parts: tuple[Part, ...]
    mounted: bool
    links: Mapping[str, str] = field(default_factory=dict)
    """What a mount needs beside files: the target of every link, by its object."""
    folders: Sequence[str] = ()
    """The objects of folders in which nothing lies."""

    def marker(self, stored: Mapping[str, int], *, written_at: float) -> Marker:
        """Return the marker of what was *stored*: sizes by name."""
        prefix = data_prefix(self.tree.digest)
        objects = []
        for part in self.parts:
            name, size = part.name.removeprefix(prefix), stored[part.name]
            if self.mounted or part.is_pack:
                objects.append(Listed(name, size))
            else:
                [entry] = part.entries
                objects.append(Listed(name, size, entry.path, entry.mode, entry.digest))
        objects += (Listed(link.removeprefix(prefix), 0) for link in self.links)
        entries = self.tree.entries if self.mounted else ()
        return Marker(
            digest=self.tree.digest,
            objects=tuple(objects),
            mounted=self.mounted,
            written_at=written_at,
            executables=tuple(e.path for e in entries if e.kind == "file" and e.mode & 0o111),
        )


def _packed(tree: Snapshot, sizes: Sizes) -> _Wanted:
    parts = packed_parts(tree.digest, tree.entries, sizes)
    return _Wanted(tree=tree, parts=parts, mounted=False)


def _mounted(store: Store, path: Path, tree: Snapshot) -> _Wanted:
    """Return the form that can be mounted.

    Raises:
        DataError: There is none.
    """
    if not isinstance(store, Mountable):
        raise DataError(
            f"{path} cannot be mounted from {store.location}: only what lies in a bucket can.",
            hint="Leave fuse=True out, or let jobs use a bucket: KINETIC_STORE=gs://BUCKET.",
        )
    entries = tree.entries
    prefix = data_files_prefix(tree.digest)
    _refuse_unmountable(path, entries, room=_room(store, prefix))
    inhabited = {entry.path.rpartition("/")[0] for entry in entries}
    folders = [e.path for e in entries if e.kind == "dir" and e.path not in inhabited]
    return _Wanted(
        tree=tree,
        parts=mounted_parts(tree.digest, entries),
        mounted=True,
        links={prefix + entry.path: entry.target for entry in entries if entry.kind == "link"},
        # Without entries there would be no folder to mount.
        folders=[prefix + folder for folder in folders] if entries else [prefix.rstrip("/")],
    )


def _sentence(path: Path, left_out: Sequence[LeftOut]) -> str:
    few = ", ".join(f"{one.path!r} ({one.rule})" for one in left_out[:_SHOWN])
    more = len(left_out) - _SHOWN
    return f"not everything in {path} is uploaded: {few}" + f", and {more} more" * (more > 0)


def _room(store: Store, prefix: str) -> int:
    """Return how many bytes of an object's name are left for a path behind *prefix*."""
    within = store.location.path.partition("/")[2]
    taken = len(f"{within}/".encode()) if within else 0
    return MAX_NAME - taken - len(prefix) - 1  # The object of a folder ends in a slash.


def _refuse_unmountable(path: Path, entries: Sequence[TreeEntry], *, room: int) -> None:
    problems = [
        f"  {entry.path!r}: {why}" for entry in entries if (why := unmountable(entry.path, room))
    ]
    if not problems:
        return
    count = len(problems)
    if count > _SHOWN:
        problems[_SHOWN:] = [f"  and {count - _SHOWN} more"]
    raise DataError(
        "\n".join([f"{count} of the paths in {path} cannot be mounted from a bucket:", *problems]),
        hint="Rename them, or leave fuse=True out: what is downloaded may have any name.",
    )


def _seen(store: Store, wanted: _Wanted) -> tuple[Marker | None, dict[str, ObjectInfo]]:
    """Return the marker, None where there is none that can be read, and the objects that are there."""
    digest, mounted = wanted.tree.digest, wanted.mounted
    marker: Marker | None = None
    there: dict[str, ObjectInfo] = {}

    def read() -> None:
        nonlocal marker
        try:
            data = read_record(store, data_marker(digest, mounted=mounted))
            marker = parse_marker(data, digest=digest, mounted=mounted)
        except FutureRecordError:
            raise
        except (ObjectNotFoundError, RecordError):
            return

    def look() -> None:
        prefix = data_prefix(digest)
        if mounted:
            listing = store.list(data_files_prefix(digest))
        else:
            # Past the form that can be mounted, which may be there as well, and is long.
            listing = store.list(prefix, start_after=f"{prefix}files0")
        there.update((info.name, info) for info in listing)

    parallel_map(lambda ask: ask(), (read, look), threads=store.concurrency)
    return marker, there


def _parted(
    wanted: _Wanted, there: Mapping[str, ObjectInfo], marker: Marker | None
) -> tuple[list[Part], list[Part]]:
    """Part what is wanted into what is missing and what is there."""
    promised = marker.sizes if marker else {}
    missing: list[Part] = []
    kept: list[Part] = []
    for part in wanted.parts:
        found = there.get(part.name)
        # The size of a pack is known from a marker alone. Without one it is that of an upload that
        # did not come to its end, or has not yet: whole, as all objects are.
        size = promised.get(part.name) if part.is_pack else part.size
        is_there = found is not None and size in (None, found.size)
        (kept if is_there else missing).append(part)
    return missing, kept


def _is_vouched_for(
    wanted: _Wanted,
    there: Mapping[str, ObjectInfo],
    marker: Marker | None,
    stored: Mapping[str, int],
) -> bool:
    return (
        marker is not None
        and marker == wanted.marker(stored, written_at=marker.written_at)
        and all(link in there for link in wanted.links)
    )


def _renew(store: Store, old: Sequence[Part], there: Mapping[str, ObjectInfo]) -> list[Part]:
    """Make *old* objects young; return those that went meanwhile."""
    gone: list[Part] = []

    def renew(part: Part) -> None:
        with suppress(PreconditionFailedError):  # Somebody else made it young.
            if store.renew(part.name, if_generation=there[part.name].generation) is None:
                gone.append(part)

    parallel_map(renew, old, threads=store.concurrency)
    return gone


def _mark(store: Store, wanted: _Wanted) -> None:
    """Have the links and empty folders of what is to be mounted; young, also if they are there."""
    if not isinstance(store, Mountable):
        return
    parallel_map(store.mark_folder, wanted.folders, threads=store.concurrency)
    links = [*wanted.links.items()]
    parallel_map(lambda link: store.mark_link(*link), links, threads=store.concurrency)


class _Sending:
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

    def send(self, parts: Sequence[Part], track: TrackProgress) -> None:
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
        with track("uploading data", sum(part.size for part in parts)) as advance:
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
            progress.whole = write_archive(stream, self._tree.root, part.entries)
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
