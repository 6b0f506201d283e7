"""Objects of a job that still have to be stored: files in a folder that outlives the job.

The runner writes a file for each object, and removes it when the store has the object. Files that are left,
because the store refused them or the runner was killed, are stored later: by the supervisor, or by a client
that reads the result.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from kinetic_payload.errors import IntegrityError, PreconditionFailedError, StoreError
from kinetic_payload.files.atomic import replacing
from kinetic_payload.files.private import make_folder
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.signing import Signing
from kinetic_payload.records.storage import write_once
from kinetic_payload.stores.store import ABSENT, Store

_HOST_OUTCOME: Final = ".json"
_TROUBLE: Final = "trouble.txt"
_TRIES: Final = 100


class PendingUploads:
    """The files of one job below *folder*, which is created when the first file is written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Open the file of the object *name*; flush it and rename it into place at the end of the block.

        Raises:
            OSError: It could not be written.
        """
        path, left = self._path(name), _TRIES
        with ExitStack() as stack:
            while True:
                left -= 1
                try:
                    make_folder(path.parent)
                    stream = stack.enter_context(replacing(path, durable=True))
                    break
                except (FileNotFoundError, FileExistsError):
                    # Another host has just removed its last file, and the folder with it.
                    if not left:
                        raise
            yield stream

    def write(self, name: str, data: bytes) -> None:
        """Write *data* as the file of the object *name*, complete or not at all.

        Raises:
            OSError: It could not be written.
        """
        with self.writer(name) as stream:
            stream.write(data)

    def has(self, name: str) -> bool:
        """Tell whether there is a file of the object *name*."""
        return self._path(name).is_file()

    def remove(self, name: str) -> None:
        """Remove the file of the object *name*, and the folders that are empty then.

        Raises:
            OSError: The file could not be removed.
        """
        path = self._path(name)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            for folder in path.parents:
                folder.rmdir()
                if folder == self.folder:
                    break

    def note(self, trouble: str) -> None:
        """Write down why something is not stored yet; the next note replaces it."""
        with suppress(OSError):
            self.write(_TROUBLE, trouble.encode(errors="backslashreplace"))

    @property
    def trouble(self) -> str:
        """The note about why something is not stored yet; empty if there is none."""
        try:
            return self._path(_TROUBLE).read_text(errors="replace")
        except OSError:
            return ""

    def remove_note(self) -> None:
        """Remove the note: everything is stored."""
        with suppress(OSError):
            self.remove(_TROUBLE)

    def host_outcomes(self) -> dict[str, bytes]:
        """Return the host outcomes in the folder, by name."""
        found = {}
        for name in self._names():
            if name.endswith(_HOST_OUTCOME):
                with suppress(FileNotFoundError):  # It was stored a moment ago.
                    found[name] = self._path(name).read_bytes()
        return found

    @property
    def since(self) -> float | None:
        """When the first host outcome was written, in seconds since the epoch; None if there is none."""
        times = []
        for name in self._names():
            if name.endswith(_HOST_OUTCOME):
                with suppress(FileNotFoundError):
                    times.append(self._path(name).stat().st_mtime)
        return min(times, default=None)

    def store_all(self, store: Store, signer: Signing) -> None:
        """Store every host outcome in the folder, each after its value; remove the files that are stored.

        A file with another digest than the host outcome names is not stored. A host outcome that the job has stored
        before is kept; an object that *signer* does not verify is replaced.

        Raises:
            StoreError: The store refused a file, which stays in the folder.
            IntegrityError: A file in the folder is not what the job wrote.
        """
        for name, data in self.host_outcomes().items():
            signer.verify(data, name)
            for value, digest in _values_of(data):
                if self.has(value):
                    self.store_value(store, value, digest)
            write_once(store, signer, name, data)
            self.remove(name)
        self.remove_note()

    def store_value(self, store: Store, name: str, digest: str, *, replace: bool = False) -> None:
        """Store the file *name*, which has *digest*, and remove it from the folder.

        With *replace*, an object of that name with other contents is replaced: the job did not write it.

        Raises:
            StoreError: The store refused the file, which stays in the folder.
            IntegrityError: The file has changed.
            PreconditionFailedError: The store has another object of its name.
        """
        path = self._path(name)
        try:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != digest:
                raise IntegrityError(f"{path} is not what the job wrote: its digest has changed.")
            store.upload(name, path, if_generation=ABSENT)
        except PreconditionFailedError as error:
            # Stored by a request whose answer was lost, or by another process.
            if stored_digest(store, name) != digest:
                if not replace:
                    raise PreconditionFailedError(
                        f"{store.location}/{name} exists already, and is not what the job wrote.",
                        hint="Remove it, then try again.",
                    ) from error
                info = store.stat(name)
                try:
                    store.upload(name, path, if_generation=info.generation if info else ABSENT)
                except PreconditionFailedError:
                    raise overwritten_error(store, name) from error
        except FileNotFoundError:
            if store.stat(name) is None:
                raise
        self.remove(name)

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _names(self) -> list[str]:
        found = []
        for folder, _, files in os.walk(self.folder):
            place = Path(folder).relative_to(self.folder).as_posix()
            found += [f"{place}/{file}" for file in files if not file.startswith(".")]
        return sorted(found)


def overwritten_error(store: Store, name: str) -> StoreError:
    """Return the error for an object *name* that was overwritten while its job stored it."""
    return StoreError(
        f"{store.location}/{name} was overwritten by another process while it was stored.",
        hint="Find out who can write to the bucket.",
    )


def stored_digest(store: Store, name: str) -> str:
    """Return the SHA-256 of the object *name*, in hex."""
    with store.reader(name) as stream:
        return hashlib.file_digest(cast("Any", stream), "sha256").hexdigest()


def _values_of(outcome: bytes) -> Iterator[tuple[str, str]]:
    """Iterate over the objects that a host outcome names, with their digests."""
    fields = fields_of(outcome)
    error = fields.get("error")
    for pickled in (fields.get("value"), error.get("pickled") if isinstance(error, dict) else None):
        if isinstance(pickled, dict) and isinstance(pickled.get("name"), str):
            yield pickled["name"], str(pickled.get("digest"))
