"""Contexts: snapshots of projects in a store, uploaded once each, downloaded whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic_payload.errors import IntegrityError, PreconditionFailedError
from kinetic_payload.layout import context_object
from kinetic_payload.progress import Scaled, TrackProgress, silent
from kinetic_payload.stores.store import ABSENT, Store

if TYPE_CHECKING:
    from kinetic_payload.project.snapshot import Snapshot

REFRESH_AGE: Final = 7 * 86_400.0
"""Seconds after which the age of a context, or of data, is reset when it is used again. Collectors delete
objects that are twice as old, so they never delete an object that was just found."""


def ensure_context(
    store: Store, snapshot: Snapshot, *, now: float | None = None, track: TrackProgress = silent
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
def named_if_damaged(store: Store, context: str) -> Iterator[None]:
    """Name the object *context* in the error if what was downloaded is damaged.

    Raises:
        IntegrityError: It is damaged, in the store or only in the downloaded copy.
    """
    try:
        yield
    except IntegrityError as error:
        raise type(error)(error.message, hint=damaged_hint(store, context)) from error


def damaged_hint(store: Store, *names: str) -> str:
    """Return the hint for objects of which a damaged copy arrived; the store may have intact ones."""
    return (
        "Check whether the disk of the machine that read it is full or failing, and submit the job again. If "
        f"that fails, too, delete {' and '.join(names)} in {store.location}: a submit then uploads it again."
    )


def _create(store: Store, name: str, tree: Snapshot, track: TrackProgress) -> bool:
    with track("uploading the project", tree.size) as advance:
        progress = Scaled(advance, tree.size)
        try:
            with store.writer(name, if_generation=ABSENT, progress=progress) as stream:
                progress.whole = tree.write(stream)
        except PreconditionFailedError:
            return False  # Another client uploaded the same snapshot meanwhile.
    return True
