"""Trees to and from a store: contexts and data go up once, and come down verified."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from kinetic_payload.errors import (
    DataError,
    IntegrityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
)
from kinetic_payload.layout import WIRE_VERSION, context_object, data_marker, data_prefix
from kinetic_payload.store import ABSENT, Store

if TYPE_CHECKING:
    from kinetic_payload.references import DataRef
    from kinetic_payload.stat_cache import StatCache

_ARCHIVE: Final = "tree.zip"
REFRESH_AGE: Final = 7 * 86_400.0
"""Seconds after which a context that is used again is made young again: whoever collects contexts
takes those that are twice as old, and must not take one that was just found."""


class Tree(Protocol):
    """What is uploaded: `kinetic_payload.snapshot.Snapshot`."""

    @property
    def digest(self) -> str:
        """The digest of the tree, known without writing the archive."""
        ...

    def write(self, stream: BinaryIO, /) -> object:
        """Write the archive."""
        ...


def ensure_context(store: Store, snapshot: Tree, *, now: float | None = None) -> bool:
    """Upload the snapshot of a project unless the store has it; return whether bytes were sent."""
    name = context_object(snapshot.digest)
    found = store.stat(name)
    if found is None:
        return _create(store, name, snapshot)
    if (store.now() if now is None else now) - found.updated < REFRESH_AGE:
        return False
    with suppress(PreconditionFailedError):  # Somebody else made it young.
        if store.renew(name, if_generation=found.generation) is None:
            return _create(store, name, snapshot)
    return False


def fetch_context(store: Store, digest: str, dest: Path) -> None:
    """Download the snapshot of a project as the file *dest*; extraction verifies it.

    Raises:
        ObjectNotFoundError: The store does not have it.
    """
    store.download(context_object(digest), dest)


@contextmanager
def discarded_if_damaged(store: Store, prefix: str) -> Iterator[None]:
    """Remove what begins with *prefix* from the store if its bytes turn out not to be its own.

    Its name is that of its contents, so every later job would find it and take it for whole.

    Raises:
        IntegrityError: It was damaged.
    """
    try:
        yield
    except IntegrityError as error:
        with suppress(StoreError):
            for info in list(store.list(prefix)):
                store.delete(info.name)
        hint = "It was damaged in the store, and removed there. Submit the job again."
        raise type(error)(error.message, hint=hint) from error


def ensure_data(store: Store, path: Path, *, cache: StatCache | None = None) -> str:
    """Upload the file or folder at *path* unless the store has it, and return its digest.

    A marker, written last, lists what was uploaded and vouches for it. Where something that it
    lists is gone, everything is uploaded again. Any number of uploads may run at once.
    """
    from kinetic_payload.snapshot import tree_of

    tree = tree_of(path, cache=cache)
    marker = _marker(store, tree.digest)
    if marker and all(_is_as_listed(store, entry) for entry in marker):
        return tree.digest
    name = f"{data_prefix(tree.digest)}{_ARCHIVE}"
    if store.stat(name) is None:
        _create(store, name, tree)
    elif marker is not None:
        # It is not what the marker vouches for. Without a marker it is whole: an upload that died
        # before its last step, or that is at its last step now.
        with store.writer(name) as stream:
            tree.write(stream)
    _vouch(store, tree.digest, [name])
    return tree.digest


def download_data(store: Store, ref: DataRef, dest: Path) -> Path:
    """Bring the uploaded data of *ref* to the path *dest*, which does not exist yet.

    A folder becomes the folder *dest*, a file the file *dest*; every byte is verified before
    anything appears there. Returns *dest*.

    Raises:
        DataError: It was never uploaded, or is not there any more.
        IntegrityError: It is not what was uploaded.
    """
    if ref.digest is None:
        raise DataError(f"The data {ref.source!r} was not uploaded with its call.")
    beside = dest.with_name(f".{dest.name[:100]}.{os.urandom(6).hex()}")
    dest.parent.mkdir(parents=True, exist_ok=True)
    try:
        with discarded_if_damaged(store, data_prefix(ref.digest)):
            _extract(store, ref, ref.digest, beside)
        _move(beside / ref.name if not ref.is_dir else beside, dest, ref)
    finally:
        _remove(beside)
    return dest


def _extract(store: Store, ref: DataRef, digest: str, folder: Path) -> None:
    from kinetic_payload.archive import extract_archive

    try:
        with store.reader(f"{data_prefix(digest)}{_ARCHIVE}") as stream:
            extract_archive(stream, folder, expected_digest=digest)
    except ObjectNotFoundError as error:
        raise DataError(
            f"The data {ref.source!r} is not in the store {store.location} any more.",
            hint="Submit the call again: what is missing is uploaded again.",
        ) from error


def _move(source: Path, dest: Path, ref: DataRef) -> None:
    if not ref.is_dir and not source.is_file():
        found = next((entry for entry in source.parent.iterdir() if entry.is_file()), None)
        if found is None:
            raise IntegrityError(f"The data {ref.source!r} should be a file, and is none.")
        source = found
    if ref.is_dir and dest.is_dir():
        with suppress(OSError):  # An empty folder may be waiting for it.
            dest.rmdir()
    source.rename(dest)


def _remove(folder: Path) -> None:
    if folder.exists():
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _create(store: Store, name: str, tree: Tree) -> bool:
    try:
        with store.writer(name, if_generation=ABSENT) as stream:
            tree.write(stream)
    except PreconditionFailedError:
        return False  # Somebody else uploaded the same meanwhile.
    return True


def _is_as_listed(store: Store, entry: dict[str, Any]) -> bool:
    found = store.stat(entry["name"])
    return found is not None and found.size == entry["size"]


def _marker(store: Store, digest: str) -> list[dict[str, Any]] | None:
    """Return what the marker of *digest* lists, empty if it cannot be read; None without one."""
    try:
        marker = json.loads(store.read(data_marker(digest)))
        objects = marker["objects"]
        if all(isinstance(one["name"], str) and isinstance(one["size"], int) for one in objects):
            return list(objects)
    except ObjectNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        pass
    return []


def _vouch(store: Store, digest: str, names: list[str]) -> None:
    objects = []
    for name in names:
        found = store.stat(name)
        if found is None:
            raise DataError(
                f"{name} disappeared from {store.location} while it was uploaded.",
                hint="Is something else cleaning that store up?",
            )
        objects.append({"name": name, "size": found.size})
    marker = {"version": WIRE_VERSION, "digest": digest, "objects": objects}
    store.write(data_marker(digest), json.dumps(marker, sort_keys=True).encode())
