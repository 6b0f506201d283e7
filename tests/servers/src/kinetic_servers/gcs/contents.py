"""Contents of objects, in memory or in files that are removed after their last use."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import weakref
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import google_crc32c

from kinetic_servers.http.messages import FilePart

IN_MEMORY: Final = 64 * 1024
"""Up to this size, contents are kept in memory."""

INLINE: Final = 512 * 1024
"""Up to this size, bytes are hashed without another thread."""


class Content:
    """Immutable bytes, and their checksums. Several objects may share one."""

    def __init__(self, size: int, crc32c: str, md5: str | None, data: bytes | Path) -> None:
        self.size = size
        self.crc32c = crc32c
        """As the API writes it: big-endian, base64."""
        self.md5 = md5
        """None if it is not computed."""
        self.data = data
        if isinstance(data, Path):
            # Running downloads also hold this content, so that a replaced object can be read to its end.
            weakref.finalize(self, _remove, data).atexit = False

    def part(self, start: int, length: int) -> bytes | FilePart:
        """Return a part of the bytes, for a response."""
        if isinstance(self.data, bytes):
            return self.data[start : start + length]
        return FilePart(self.data, start, length, owner=self)

    def read(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data.read_bytes()

    def md5_of_all(self) -> str:
        """Return the MD5; compute it now if necessary."""
        return self.md5 or base64.b64encode(hashlib.md5(self.read()).digest()).decode()


class Incoming:
    """A content that is being written."""

    def __init__(self, folder: Path, *, md5: bool = True) -> None:
        self.size = 0
        self._folder = folder
        self._held: list[bytes] = []
        self._path: Path | None = None
        self._finished: Content | None = None
        self._file: BinaryIO | None = None
        # The library has no types of its own.
        self._crc32c: Any = cast(Any, google_crc32c).Checksum()
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._crc32c.update(data)
        if self._md5 is not None:
            self._md5.update(data)
        if self._file is None and self.size > IN_MEMORY:
            self._path = self._folder / f"{id(self):x}-{os.urandom(8).hex()}"
            self._file = self._path.open("wb")
            self._file.writelines(self._held)
            self._held.clear()
        if self._file is None:
            self._held.append(data)
        else:
            self._file.write(data)

    async def awrite(self, data: bytes) -> None:
        """Append *data*; hash large data outside of the event loop."""
        if len(data) <= INLINE:
            self.write(data)
        else:
            # The thread must drop its reference before it finishes, or it might keep the file.
            todo = [self.write]
            await asyncio.get_running_loop().run_in_executor(None, lambda: todo.pop()(data))

    def finish(self) -> Content:
        """Return the content; later calls return the same."""
        if self._finished is None:
            self._finished = self._build()
        return self._finished

    def _build(self) -> Content:
        crc32c = base64.b64encode(self._crc32c.digest()).decode()
        md5 = None if self._md5 is None else base64.b64encode(self._md5.digest()).decode()
        if self._file is None or self._path is None:
            return Content(self.size, crc32c, md5, b"".join(self._held))
        self._file.close()
        return Content(self.size, crc32c, md5, self._path)

    def discard(self) -> None:
        """Remove the bytes that were written."""
        self._held.clear()
        if self._finished is None and self._file is not None and self._path is not None:
            self._file.close()
            _remove(self._path)


def _remove(path: Path) -> None:
    # The folder may be gone already.
    path.unlink(missing_ok=True)
