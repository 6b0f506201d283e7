"""Contexts to and from a store: a project goes up once, and comes down whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from kinetic_payload.errors import IntegrityError, PreconditionFailedError, StoreError
from kinetic_payload.layout import context_object
from kinetic_payload.progress import Reports, Scaled, silent
from kinetic_payload.store import ABSENT, Store

REFRESH_AGE: Final = 7 * 86_400.0
"""Seconds after which a context, or data, that is used again is made young again: whoever collects
them takes those that are twice as old, and must not take what was just found."""


class Tree(Protocol):
    """What is uploaded: `kinetic_payload.snapshot.Snapshot`."""

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
    store: Store, snapshot: Tree, *, now: float | None = None, reports: Reports = silent
) -> bool:
    """Upload the snapshot of a project unless the store has it; return whether bytes were sent."""
    name = context_object(snapshot.digest)
    found = store.stat(name)
    if found is None:
        return _create(store, name, snapshot, reports)
    if (store.now() if now is None else now) - found.updated < REFRESH_AGE:
        return False
    with suppress(PreconditionFailedError):  # Somebody else made it young.
        if store.renew(name, if_generation=found.generation) is None:
            return _create(store, name, snapshot, reports)
    return False


def fetch_context(store: Store, digest: str, dest: Path) -> None:
    """Download the snapshot of a project as the file *dest*; extraction verifies it.

    Raises:
        ObjectNotFoundError: The store does not have it.
    """
    store.download(context_object(digest), dest)


@contextmanager
def discarded_if_damaged(store: Store, *names: str) -> Iterator[None]:
    """Remove the objects *names* from the store if their bytes turn out not to be their own.

    They are named by what they should hold: every later job would find them and take them for it.

    Raises:
        IntegrityError: They were damaged.
    """
    try:
        yield
    except IntegrityError as error:
        hint = "It was damaged in the store, and removed there. Submit the job again."
        try:
            for name in names:
                store.delete(name)
        except StoreError:
            hint = f"It is damaged in {store.location}. Delete {names[0]} there; submit again."
        raise type(error)(error.message, hint=hint) from error


def _create(store: Store, name: str, tree: Tree, reports: Reports) -> bool:
    with reports("uploading the project", tree.size) as advance:
        progress = Scaled(advance, tree.size)
        try:
            with store.writer(name, if_generation=ABSENT, progress=progress) as stream:
                progress.whole = tree.write(stream)
        except PreconditionFailedError:
            return False  # Somebody else uploaded the same meanwhile.
    return True
