"""Upload of local `Data`: objects that exist are kept and renewed, missing ones are sent.

Objects are named by the digest of their contents and written atomically, so every object that exists can
be used, whether it comes from an interrupted upload, a simultaneous one or an old one.
"""

from __future__ import annotations

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
)
from kinetic_payload.digests import FileCheck
from kinetic_payload.errors import (
    DataError,
    FutureRecordError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
    TreeChangedError,
)
from kinetic_payload.layout import data_files_prefix, data_marker, data_prefix
from kinetic_payload.limits import read_record
from kinetic_payload.progress import Scaled, TrackProgress, silent
from kinetic_payload.project.context import REFRESH_AGE
from kinetic_payload.project.snapshot import Snapshot, tree_of
from kinetic_payload.project.stat_cache import StatCache
from kinetic_payload.project.tree import EXCLUDED, SYSTEM_FILE
from kinetic_payload.stores.names import problem_of
from kinetic_payload.stores.store import ABSENT, Mountable, ObjectInfo, Store
from kinetic_payload.threads import Executor, parallel_map

_SHOWN: Final = 10
"""The most paths that a message names."""
_STREAMS: Final = 8
"""Large objects sent at once: more would cost memory and disk, and gain nothing."""
_PACKERS: Final = 2
"""Packs written at once. One uses all cores, except at its beginning and end."""


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

    Any number of uploads may run at once, and an interrupted one is resumed. If the store has the data,
    this reads its marker and one list, and resets the age of old objects.

    Args:
        mounted: Upload every file as an object, to be mounted; else in packs, to be downloaded.
        warn: Called with a sentence about the paths that are not uploaded, if there are any.
        exclude: Paths that are not uploaded, without a warning.
        sizes: How to split the tree into objects; all clients of one store must agree.

    Raises:
        DataError: It cannot be read, or cannot be mounted; nothing was sent.
        TreeChangedError: A file changed meanwhile; the message names it.
    """
    tree = tree_of(path, cache, exclude=exclude, track=track)
    left_out = [entry for entry in tree.left_out if entry.rule not in (EXCLUDED, SYSTEM_FILE)]
    if warn is not None and left_out:
        few = ", ".join(f"{entry.path!r} ({entry.rule})" for entry in left_out[:_SHOWN])
        more = len(left_out) - _SHOWN
        warn(f"not everything in {path} is uploaded: {few}" + f", and {more} more" * (more > 0))
    if mounted:
        wanted = _mounted_form(store, path, tree)
    else:
        parts = packed_parts(tree.digest, tree.entries, sizes)
        wanted = _Wanted(tree=tree, parts=parts, mounted=False)
    marker, existing = _find_stored(store, wanted)
    # Every object is complete, also one of an upload that was interrupted or still runs.
    missing = [part for part in wanted.parts if part.name not in existing]
    present = [part for part in wanted.parts if part.name in existing]
    for part in present:
        if not part.is_pack and (size := existing[part.name].size) != part.size:
            raise DataError(
                f"The object {part.name} of {store.location} has {size:,} bytes, and not the {part.size:,} "
                "of its file: somebody changed it.",
                hint="Delete it, and submit again.",
            )
    oldest = store.now() - REFRESH_AGE
    old = [part for part in present if existing[part.name].updated < oldest]
    stored = {part.name: existing[part.name].size for part in present}
    if (
        marker is not None
        and marker.written_at >= oldest
        and not (missing or old)
        and marker == wanted.marker(stored, written_at=marker.written_at)
        and all(link in existing for link in wanted.links)
    ):
        return tree.digest

    def renew(part: Part) -> None:
        with suppress(PreconditionFailedError):  # Another client renewed it.
            if store.renew(part.name, if_generation=existing[part.name].generation) is None:
                missing.append(part)  # It was deleted meanwhile.

    parallel_map(renew, old, threads=store.concurrency)
    if isinstance(store, Mountable):  # Existing marks are renewed.
        parallel_map(store.mark_folder, wanted.folders, threads=store.concurrency)
        links = [*wanted.links.items()]
        parallel_map(lambda link: store.mark_link(*link), links, threads=store.concurrency)
    sent = _send(store, tree, missing, sizes, track)
    complete = wanted.marker(stored | sent, written_at=store.now())
    store.write(data_marker(tree.digest, mounted=mounted), encode_marker(complete))
    return tree.digest


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A tree in the form in which it is uploaded."""

    tree: Snapshot
    parts: tuple[Part, ...]
    mounted: bool
    links: Mapping[str, str] = field(default_factory=dict)
    """For a mount: the target of every link, by its object."""
    folders: Sequence[str] = ()
    """For a mount: the objects of empty folders."""

    def marker(self, stored: Mapping[str, int], *, written_at: float) -> Marker:
        """Return the marker, given the sizes of the *stored* objects by name."""
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


def _mounted_form(store: Store, path: Path, tree: Snapshot) -> _Wanted:
    """Return the form that can be mounted.

    Raises:
        DataError: The store or a path does not allow it.
    """
    if not isinstance(store, Mountable):
        raise DataError(
            f"{path} cannot be mounted from {store.location}: only data in a bucket can.",
            hint="Leave fuse=True out, or let jobs use a bucket: KINETIC_STORE=gs://BUCKET.",
        )
    entries = tree.entries
    prefix = data_files_prefix(tree.digest)
    full = f"{store.location.path.partition('/')[2]}/{prefix}".removeprefix("/")
    # The object of a folder has a slash at its end, so its name is a byte longer.
    problems = [
        f"  {entry.path!r}: {why}"
        for entry in entries
        if (why := problem_of(f"{full}{entry.path}~"))
    ]
    if count := len(problems):
        if count > _SHOWN:
            problems[_SHOWN:] = [f"  and {count - _SHOWN} more"]
        raise DataError(
            "\n".join(
                [f"{count} of the paths in {path} cannot be mounted from a bucket:", *problems]
            ),
            hint="Rename them, or leave fuse=True out: files that are downloaded may have any name.",
        )
    inhabited = {entry.path.rpartition("/")[0] for entry in entries}
    folders = [e.path for e in entries if e.kind == "dir" and e.path not in inhabited]
    return _Wanted(
        tree=tree,
        parts=mounted_parts(tree.digest, entries),
        mounted=True,
        links={prefix + entry.path: entry.target for entry in entries if entry.kind == "link"},
        # An empty tree needs its top folder as a mark.
        folders=[prefix + folder for folder in folders] if entries else [prefix.rstrip("/")],
    )


def _find_stored(store: Store, wanted: _Wanted) -> tuple[Marker | None, dict[str, ObjectInfo]]:
    """Return the marker, None if there is no valid one, and the objects that exist."""
    digest, mounted = wanted.tree.digest, wanted.mounted

    def read_marker() -> Marker | None:
        try:
            data = read_record(store, data_marker(digest, mounted=mounted))
            return parse_marker(data, digest=digest, mounted=mounted)
        except FutureRecordError:
            raise
        except (ObjectNotFoundError, RecordError):
            return None

    with Executor(store.concurrency) as executor:
        marker = executor.submit(read_marker)
        if mounted:
            listing = store.list(data_files_prefix(digest))
        else:
            # Skip the objects of the mounted form, which may exist as well and are many.
            prefix = data_prefix(digest)
            listing = store.list(prefix, start_after=f"{prefix}files0")
        existing = {info.name: info for info in listing}
        return marker.result(), existing


def _send(
    store: Store, tree: Snapshot, parts: Sequence[Part], sizes: Sizes, track: TrackProgress
) -> dict[str, int]:
    """Send *parts*, as many at once as the store recommends; return the sizes of the objects by name.

    Raises:
        TreeChangedError: A file is not what it was when its digest was taken.
    """
    sent: dict[str, int] = {}
    if not parts:
        return sent
    packing = threading.Semaphore(_PACKERS)

    def send(part: Part) -> None:
        progress = Scaled(advance, part.size)
        try:
            if part.is_pack:
                writer = store.writer(part.name, if_generation=ABSENT, progress=progress)
                # The archive is sent when the block ends, so its size is known by then.
                with writer as stream, packing:
                    progress.whole = write_archive(stream, tree.root, part.entries)
                sent[part.name] = progress.whole
            else:
                [entry] = part.entries
                path = tree.root / entry.path
                changed = TreeChangedError(
                    f"{entry.path!r} changed while it was being uploaded.",
                    hint="Submit again when nothing writes to it any more.",
                )
                if not path.is_file():
                    raise changed
                check = FileCheck(entry, changed)
                sent[part.name] = store.upload(
                    part.name, path, if_generation=ABSENT, progress=advance, check=check
                ).size
        except PreconditionFailedError:  # Another client uploaded it meanwhile.
            info = store.stat(part.name)
            if info is None:
                raise DataError(
                    f"{part.name} disappeared from {store.location} while it was uploaded.",
                    hint="Check whether another program deletes objects from that store.",
                ) from None
            sent[part.name] = info.size
            advance(part.size)

    # The largest first, so that none runs alone at the end.
    ordered = sorted(parts, key=lambda part: part.size, reverse=True)
    small = [p for p in ordered if not p.is_pack and p.size <= sizes.small]
    large = [p for p in ordered if p.is_pack or p.size > sizes.small]
    with track("uploading data", sum(part.size for part in parts)) as advance:
        parallel_map(send, small, threads=store.concurrency)
        parallel_map(send, large, threads=min(store.concurrency, _STREAMS))
    return sent
