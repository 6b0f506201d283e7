"""Keys that sign and verify records in a bucket; the key in `KINETIC_HOME`."""

from __future__ import annotations

import logging
import os
import shlex
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kinetic.errors import ConfigurationError, SignatureError, SubmitError
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import FILE_MODE, make_folder, others_may_write, write_private
from kinetic_payload.frozen import frozen
from kinetic_payload.records.signing import KEY_SIZE, signed, verify

log = logging.getLogger("kinetic")


class KeySource(Protocol):
    """The place of the key that signs records."""

    def read(self) -> bytes | None:
        """Return the key, or None if none was made yet.

        Raises:
            ConfigurationError: The stored key is not valid, or may not be read.
        """
        ...

    def ensure(self) -> bytes:
        """Return the key; make one if there is none. All processes get the same key.

        Raises:
            ConfigurationError: The stored key is not valid; it is left as it is.
            SubmitError: The key cannot be written.
        """
        ...

    @property
    def place(self) -> str:
        """The location of the key, for messages."""
        ...

    @property
    def hint(self) -> str:
        """The hint of errors about a record that was signed with another key."""
        ...


@frozen()
class KeyFile:
    """The key in *home* (`KINETIC_HOME`)."""

    home: Path

    @property
    def path(self) -> Path:
        """The file of the key."""
        return self.home / "key"

    def read(self) -> bytes | None:
        """Return the key, or None if none was made yet."""
        path = self.path
        try:
            with path.open("rb") as stream:
                text, found = stream.read(), os.fstat(stream.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"The key in {path} cannot be read: {error.strerror}.",
                hint="Give yourself the right to read it, or name another folder with KINETIC_HOME.",
            ) from error
        if others_may_write(found):
            raise ConfigurationError(
                f"Other users may have written the key in {path}: it belongs to user {found.st_uid}, with mode "
                f"{stat.S_IMODE(found.st_mode):04o}. Whoever knows it can sign records that run code here.",
                hint=f"Run: chmod 600 {shlex.quote(str(path))}\nIf you do not trust its contents, remove it "
                "instead: a new key is made, which cannot verify the jobs that were submitted with the old one.",
            )
        if found.st_mode & 0o077:  # It was copied with another mode, for instance.
            with suppress(OSError):
                path.chmod(FILE_MODE)
        key = b""
        with suppress(ValueError):
            # Accept only what `ensure` writes: `fromhex` would accept spaces between the digits.
            key = bytes.fromhex(text.decode("ascii")) if len(text) == 2 * KEY_SIZE + 1 else b""
        if len(key) != KEY_SIZE:
            raise ConfigurationError(
                f"{path} does not contain a key: {KEY_SIZE * 2} hexadecimal digits and a line end.",
                hint="Restore it from a copy. If there is none, remove it: a new key is made, which cannot "
                "verify the jobs that were submitted with the old one.",
            )
        return key

    def ensure(self) -> bytes:
        """Return the key; make one if there is none."""
        key = self.read()
        if key is not None:
            return key
        path = self.path
        try:
            make_folder(self.home)
            # Without the lock a second process could replace the key that the first has signed with.
            with locked(str(path.with_name(f".{path.name}.lock"))):
                try:
                    path.lstat()  # A link to a folder that is not mounted stays.
                except FileNotFoundError:
                    new = os.urandom(KEY_SIZE).hex().encode() + b"\n"
                    write_private(path, new, durable=True)
        except OSError as error:
            raise SubmitError(
                f"Kinetic could not write its key to {path}: {error.strerror}.",
                hint="Make room or give yourself the right to write there, or name another folder with "
                "KINETIC_HOME.",
            ) from error
        # If another process made a key first, use that key.
        key = self.read()
        if key is None:
            raise SubmitError(f"{path} was removed while it was made.", hint="Submit again.")
        return key

    @property
    def place(self) -> str:
        """The location of the key, for messages."""
        return str(self.path)

    @property
    def hint(self) -> str:
        """The hint of errors about a record that was signed with another key."""
        return (
            "Nothing of it was unpickled. If you submitted it from another machine (or KINETIC_HOME), "
            f"copy its KINETIC_HOME/key to {self.place}; if you trust everyone who can write to this "
            "bucket, accept it once with KINETIC_TRUST_BUCKET=1."
        )


class KeySigner:
    """Signs and verifies the records of jobs whose store is a bucket.

    If a signature is wrong, *trusting* is called, and the record is accepted if it returns True.
    """

    def __init__(self, keys: KeySource, *, trusting: Callable[[], bool] = lambda: False) -> None:
        self._keys = keys
        self._trusting = trusting
        self._known: bytes | None = None
        """The key, once it was read: one look at a batch verifies thousands of records."""

    @property
    def key(self) -> bytes:
        """The key; it is made if there is none."""
        return self._keys.ensure()

    def sign(self, data: bytes, name: str) -> bytes:
        """Return the record *data* with its signature as the object *name*."""
        return signed(data, self.key, name=name)

    @property
    def strict(self) -> KeySigner:
        """A signer with the same key that accepts no wrong signature."""
        return KeySigner(self._keys)

    def verify(self, data: bytes, name: str) -> None:
        """Make sure that *data*, read from the object *name*, was signed with our key.

        Raises:
            SignatureError: It was not, and *trusting* returned False.
        """
        try:
            key = self._known = self._known or self._keys.read()
            if key is None:
                raise SignatureError(
                    f"{name} cannot be verified: there is no key in {self._keys.place}.",
                    hint=self._keys.hint,
                )
            verify(data, key, name=name, if_other_key=self._keys.hint)
        except (SignatureError, ConfigurationError) as error:
            if not self._trusting():
                raise
            log.info("Accepted because of KINETIC_TRUST_BUCKET: %s", error.message)
