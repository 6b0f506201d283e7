"""Atomic creation of a file or folder: prepared beside its path, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from kinetic_payload.files.private import flush_to_disk, make_folder, open_private


@contextmanager
def prepare_beside(dest: Path) -> Iterator[Path]:
    """Yield a new folder beside *dest*, to prepare a file or folder for `rename_into_place`.

    The folder, and everything left in it, is removed at the end of the block.
    """
    folder = dest.with_name(f".{dest.name[:50]}.{os.urandom(6).hex()}")
    try:
        make_folder(folder)
        yield folder
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a private file that becomes the file *path* at the end of the block, complete or not at all.

    With *durable*, it survives a crash of the machine.
    """
    part = path.with_name(f".{path.name[:50]}.{os.urandom(6).hex()}.part")
    try:
        with open(part, "x+b", opener=open_private) as stream:
            yield stream
            if durable:
                stream.flush()
                flush_to_disk(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def rename_into_place(source: Path, dest: Path) -> None:
    """Rename *source* to *dest*, which may be an empty folder."""
    with suppress(OSError):
        dest.rmdir()
    source.rename(dest)


class NewFile:
    """A new file at *path*, which must not exist. `finish` puts the complete file there.

    Its mode is the one that the user's umask gives to new files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name[:50]}.{os.urandom(6).hex()}.part")
        self._stream: BinaryIO | None = None

    def begin(self) -> BinaryIO:
        """Return an empty stream for the contents; earlier contents are discarded."""
        if self._stream is None:
            fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            self._stream = os.fdopen(fd, "w+b")
        self._stream.seek(0)
        self._stream.truncate()
        return self._stream

    def finish(self) -> None:
        """Put the file at its path, once all of it is on the disk.

        Raises:
            FileExistsError: Something has appeared at the path meanwhile; it is left alone.
        """
        assert self._stream is not None
        self._stream.flush()
        flush_to_disk(self._stream.fileno())
        # An empty file reserves the name until the rename.
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        self._part.replace(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            self._part.unlink(missing_ok=True)
            with suppress(OSError):  # Contents that were not finished are not needed.
                self._stream.close()
