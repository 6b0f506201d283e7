"""Contexts: snapshots of projects in a store, uploaded once each, downloaded whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from kinetic_payload.errors import (
    IntegrityError,
    KineticError,
    PreconditionFailedError,
    StoreError,
)
from kinetic_payload.layout import context_digest, context_object
from kinetic_payload.progress import Scaled, TrackProgress, silent
from kinetic_payload.stores.store import ABSENT, Store

REFRESH_AGE: Final = 7 * 86_400.0
"""Seconds after which the age of a context, or of data, is reset when it is used again. Collectors delete
objects that are twice as old, so they never delete an object that was just found."""


class Uploadable(Protocol):
    """A tree to upload: `kinetic_payload.project.snapshot.Snapshot`."""

    @property
    def digest(self) -> str:
        """The digest of the tree, known without writing the archive."""
        ...

    @property
    def size(self) -> int:
        """The bytes of all files, before compression."""
        ...

    def write(self, stream: BinaryIO, /) -> int:
        """Write the archive and return its size."""
        ...


def ensure_context(
    store: Store, snapshot: Uploadable, *, now: float | None = None, track: TrackProgress = silent
) -> bool:
    """Upload the snapshot of a project unless the store has it; return whether bytes were sent."""
    name = context_object(snapshot.digest)
    found = store.stat(name)
    if found is None:
        return _create(store, name, snapshot, track)
    if (store.now() if now is None else now) - found.updated < REFRESH_AGE:
        return False
    with suppress(PreconditionFailedError):  # Another client renewed it.
        if store.renew(name, if_generation=found.generation) is None:
            return _create(store, name, snapshot, track)
    return False


def fetch_context(store: Store, digest: str, dest: Path) -> None:
    """Download the snapshot of a project as the file *dest*; extraction verifies it.

    Raises:
        ObjectNotFoundError: The store does not have it.
    """
    store.download(context_object(digest), dest)


@contextmanager
def discarded_if_damaged(store: Store, context: str) -> Iterator[None]:
    """Remove the snapshot *context* from the store if it is damaged there.

    Raises:
        IntegrityError: It is damaged in the store, or only the downloaded copy is.
    """
    with discarding(store, lambda: _damaged_context(store, context)):
        yield


@contextmanager
def discarding(store: Store, damaged: Callable[[], Mapping[str, int]]) -> Iterator[None]:
    """Remove damaged objects from the store.

    Objects are named by the digest of their contents, so every later job would use the damaged one. But an
    object that arrived damaged may be intact in the store (a full disk, a broken connection).

    Args:
        damaged: Reads the objects in the store again, and returns the generations of those that are
            damaged there.

    Raises:
        IntegrityError: Something is damaged, in the store or only in the downloaded copy.
    """
    try:
        yield
    except IntegrityError as error:
        raise type(error)(error.message, hint=_discard(store, damaged)) from error


def _discard(store: Store, damaged: Callable[[], Mapping[str, int]]) -> str:
    """Remove the damaged objects; return the hint."""
    try:
        found = damaged()
    except (KineticError, OSError) as error:
        return f"It could not be read again from {store.location} ({error}). Submit the job again."
    if not found:
        return (
            f"It is intact in {store.location}, but arrived damaged: check whether the disk of the "
            "machine that read it is full or failing. Submit the job again."
        )
    for name, generation in found.items():
        try:
            store.delete(name, if_generation=generation)
        except PreconditionFailedError:
            continue  # It was replaced: keep the new object.
        except StoreError:
            return (
                f"It is damaged in {store.location}. Delete {name} there, and submit the job again."
            )
    return "It was damaged in the store, and removed there. Submit the job again."


def _damaged_context(store: Store, name: str) -> dict[str, int]:
    from kinetic_payload.archives.extract import Contents, checked_links, expected_tree

    found = store.stat(name)
    if found is None:
        return {}
    with store.reader(name) as stream:
        # Keep the reader out of this block: damage in transit does not mean that the object is damaged.
        try:
            contents = Contents(stream)
            checked_links(contents.entries)
            expected_tree(contents.entries, context_digest(name))
            contents.check()
        except IntegrityError:
            return {name: found.generation}
    return {}


def _create(store: Store, name: str, tree: Uploadable, track: TrackProgress) -> bool:
    with track("uploading the project", tree.size) as advance:
        progress = Scaled(advance, tree.size)
        try:
            with store.writer(name, if_generation=ABSENT, progress=progress) as stream:
                progress.whole = tree.write(stream)
        except PreconditionFailedError:
            return False  # Another client uploaded the same snapshot meanwhile.
    return True
