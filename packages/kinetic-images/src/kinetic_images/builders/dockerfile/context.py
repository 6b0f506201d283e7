"""Build contexts: named files with a digest, written as a reproducible tar archive."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from kinetic_images.errors import BuildInputError


@dataclass(frozen=True)
class ContextFile:
    """A file of a build context: bytes, a file on this machine, a symbolic link, or a folder."""

    content: bytes | Path | None = field(repr=False)
    """None: a symbolic link to `link`; or a folder, whose name in the context ends with a slash."""
    executable: bool = False
    sha256: str = ""
    """The expected digest in hexadecimal digits; empty: any."""
    link: str = ""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content.

        Raises:
            BuildInputError: The content is not what was expected, or cannot be read.
        """
        if isinstance(self.content, Path):
            with _opened(self.content) as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        else:
            found = hashlib.sha256(self.content or b"").hexdigest()
        if self.sha256 and found != self.sha256:
            what = self.content if isinstance(self.content, Path) else "A file of the build"
            raise BuildInputError(
                f"{what} has changed since it was locked: its SHA-256 is {found}, not "
                f"{self.sha256}.",
                hint="Resolve the dependencies again: KINETIC_REBUILD=1.",
            )
        return found


@dataclass(frozen=True)
class BuildContext:
    """The files of a build: `path in the context → file`, and which of them is the Dockerfile."""

    files: Mapping[str, ContextFile]
    dockerfile: str = "Dockerfile"

    @cached_property
    def digest(self) -> str:
        """The digest of names, modes and contents, in hexadecimal digits. Compression does not change it."""
        rows = [
            [name, file.executable, file.link, file.digest]
            for name, file in sorted(self.files.items())
        ]
        return hashlib.sha256(json.dumps([self.dockerfile, rows]).encode()).hexdigest()

    def write_archive(self, stream: BinaryIO, *, compressed: bool) -> None:
        """Write all files to *stream* as a tar archive, compressed with gzip or not.

        Owners, times and the order of files do not depend on this machine.

        Raises:
            BuildInputError: A file is not what was expected, or cannot be read.
        """
        with (
            _gzip(stream) if compressed else nullcontext(stream) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            # docker recognises an archive by its first entry, and not if that has an extended header.
            root = tarfile.TarInfo("./")
            root.type, root.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(root)
            for name, file in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.mode = 0o755 if file.executable else 0o644
                if isinstance(file.content, Path):
                    expected = file.digest
                    with _opened(file.content) as opened:
                        reader = _Hashing(opened, file.content)
                        entry.size = opened.seek(0, io.SEEK_END)
                        opened.seek(0)
                        archive.addfile(entry, reader)
                    if reader.hash.hexdigest() != expected:
                        raise BuildInputError(
                            f"{file.content} changed while it was read.",
                            hint="Build again, when it is complete.",
                        )
                    continue
                if name.endswith("/"):
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                elif file.content is None:
                    entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                content = file.content or b""
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


class _Hashing(io.RawIOBase):
    """A stream that hashes what is read from it."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.hash = hashlib.sha256()
        self._stream = stream
        self._path = path

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        try:
            data = self._stream.read(size)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        self.hash.update(data)
        return data


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BuildInputError:
    return BuildInputError(
        f"{path}, a file of the image build, cannot be read: {error.strerror or error}.",
        hint="Check that it exists, and its permissions.",
    )


def _gzip(stream: BinaryIO) -> IO[bytes]:
    """Return a gzip stream without a name and time of its own."""
    module: Any
    try:
        from isal import igzip as module  # Ten times faster than zlib.
    except ImportError:
        import gzip as module
    return cast("IO[bytes]", module.GzipFile(fileobj=stream, filename="", mode="wb", mtime=0))
