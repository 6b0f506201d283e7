"""`NewFile`: a file that appears complete at a path where nothing is, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import click


class NewFile:
    """Contents on their way to *path*. Before `finish` there is nothing at the path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name[:50]}.{os.urandom(6).hex()}.part")
        self._stream: BinaryIO | None = None

    def begin(self) -> BinaryIO:
        """Return an empty stream for the contents; what was written before is discarded."""
        if self._stream is None:
            fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            self._stream = os.fdopen(fd, "w+b")
        self._stream.seek(0)
        self._stream.truncate()
        return self._stream

    def finish(self) -> None:
        """Let the file appear, once all of it is on the disk.

        Raises:
            FileExistsError: Something has appeared at the path meanwhile; it is left alone.
        """
        from kinetic_payload.files.durability import flush_to_disk

        assert self._stream is not None
        self._stream.flush()
        flush_to_disk(self._stream.fileno())
        try:
            os.link(self._part, self.path)
        except FileExistsError:
            raise
        except OSError:
            # This file system has no links. An empty file holds the place for an instant.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            self._part.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._part.unlink(missing_ok=True)
            try:
                self._stream.close()
            except OSError:
                # What could not be flushed is not wanted any more.
                if error is None:
                    raise


class NewFilePath(click.Path):
    """A path at which a file can be made: nothing is there, and its folder may be written to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return *value* as a path, or refuse it."""
        path = Path(value)
        if value == "-":
            self.fail("'-' is not a file. For one of that name write ./-", param, ctx)
        if path.is_dir():
            self.fail(f"'{value}' is a folder. Name a file in it.", param, ctx)
        if os.path.lexists(path):
            self.fail(f"'{value}' exists already. Name another file, or remove it.", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"There is no folder '{path.parent}'.", param, ctx)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            self.fail(f"You may not write to the folder '{path.parent}'.", param, ctx)
        return path
