"""Contexts: snapshots of projects in a store, uploaded once each, downloaded whole or not at all.

A small project is one archive. A larger one is uploaded in parts (`kinetic_payload.project.parts`), and downloaded as one
archive, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic_payload.errors import (
    IntegrityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
)
from kinetic_payload.files.private import open_private
from kinetic_payload.layout import context_object, context_parts
from kinetic_payload.limits import read_record
from kinetic_payload.progress import Scaled, TrackProgress, silent
from kinetic_payload.project.parts import MOST, ensure_parts, parsed_parts
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic_payload.project.snapshot import Snapshot

REFRESH_AGE: Final = 7 * 86_400.0
"""Seconds after which the age of a context, or of data, is reset when it is used again. Collectors delete
objects that are twice as old, so they never delete an object that was just found."""
_STREAMS: Final = 8


def ensure_context(
    store: Store, snapshot: Snapshot, *, now: float | None = None, track: TrackProgress = silent
) -> int:
    """Upload the snapshot of a project unless the store has it; return how many bytes of its files were sent."""
    if snapshot.size > MOST:
        oldest = (store.now() if now is None else now) - REFRESH_AGE
        return ensure_parts(store, snapshot, oldest, track)
    name = context_object(snapshot.digest)
    found = store.stat(name)
    if found is None:
        return _create(store, name, snapshot, track)
    if (store.now() if now is None else now) - found.updated < REFRESH_AGE:
        return 0
    with suppress(PreconditionFailedError):  # Another client renewed it.
        if store.renew(name, if_generation=found.generation) is None:
            return _create(store, name, snapshot, track)
    return 0


def fetch_context(store: Store, digest: str, dest: Path) -> None:
    """Download the snapshot of a project as the file *dest*; extraction verifies it.

    Raises:
        ObjectNotFoundError: The store does not have it, or not all of its parts.
        IntegrityError: One of its parts is not what its name says.
    """
    try:
        store.download(context_object(digest), dest)
    except ObjectNotFoundError as error:
        try:
            listed = read_record(store, context_parts(digest))
        except ObjectNotFoundError:
            raise error from None
        try:
            parts, _ = parsed_parts(listed, digest)
        except RecordError as wrong:
            raise IntegrityError(
                wrong.message, hint=damaged_hint(store, context_parts(digest))
            ) from wrong
        _join(store, parts, dest)


def _join(store: Store, parts: list[str], dest: Path) -> None:
    """Download *parts* as one archive: one after another, and a directory for all of them."""
    from shutil import copyfileobj

    from kinetic_payload.archives.extract import MAX_ENTRIES, Contents
    from kinetic_payload.archives.zip_format import central_header, end_records
    from kinetic_payload.digests import tree_digest

    directory = list[bytes]()

    def download(number: int) -> Path:
        path = dest.with_name(f"{dest.name}.{number}")
        store.download(parts[number], path)
        return path

    fd = open_private(dest, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "wb") as joined:  # noqa: PTH123 - a descriptor
        for first in range(0, len(parts), _STREAMS):
            numbers = range(first, min(first + _STREAMS, len(parts)))
            threads = min(store.concurrency, _STREAMS)
            for number, path in zip(
                numbers, parallel_map(download, numbers, threads=threads), strict=True
            ):
                with path.open("rb") as stream:
                    start = joined.tell()
                    try:
                        contents = Contents(stream)
                        found = tree_digest(contents.entries)
                        if not parts[number].endswith(f"/{found}.zip"):
                            raise IntegrityError("It was replaced by another archive.")
                    except IntegrityError as error:
                        raise type(error)(
                            f"{parts[number]}: {error.message}",
                            hint=damaged_hint(store, parts[number]),
                        ) from error
                    for member in contents.members:
                        member.offset += start
                        directory.append(central_header(member))
                    stream.seek(0)
                    copyfileobj(stream, joined, 1 << 20)
                path.unlink()
                if len(directory) > MAX_ENTRIES:
                    raise IntegrityError(f"The project has more than {MAX_ENTRIES} entries.")
        start, length = joined.tell(), sum(map(len, directory))
        joined.writelines(directory)
        joined.write(end_records(len(directory), start, length))


def stored_context(store: Store, digest: str) -> list[str]:
    """Return the names of the objects of a context, the list of its parts last; none if the store does not have it."""
    name, listed = context_object(digest), context_parts(digest)
    if store.stat(name) is not None:
        return [name]
    try:
        return [*parsed_parts(read_record(store, listed), digest)[0], listed]
    except ObjectNotFoundError:
        return []


@contextmanager
def named_if_damaged(store: Store, digest: str) -> Iterator[None]:
    """Name the objects of the context *digest* in the error if what was downloaded is damaged.

    Raises:
        IntegrityError: It is damaged, in the store or only in the downloaded copy.
    """
    try:
        yield
    except IntegrityError as error:
        name = context_object(digest)
        if store.stat(name) is None:
            name = f"the parts that {context_parts(digest)} lists"
        raise type(error)(error.message, hint=damaged_hint(store, name)) from error


def damaged_hint(store: Store, *names: str) -> str:
    """Return the hint for objects of which a damaged copy arrived; the store may have intact ones."""
    return (
        "Check whether the disk of the machine that read it is full or failing, and submit the job again. If "
        f"that fails, too, delete {' and '.join(names)} in {store.location}: a submit then uploads it again."
    )


def _create(store: Store, name: str, tree: Snapshot, track: TrackProgress) -> int:
    with track("uploading the project", tree.size) as advance:
        progress = Scaled(advance, tree.size)
        try:
            with store.writer(name, if_generation=ABSENT, progress=progress) as stream:
                progress.whole = tree.write(stream)
        except PreconditionFailedError:
            return 0  # Another client uploaded the same snapshot meanwhile.
    return max(tree.size, 1)
