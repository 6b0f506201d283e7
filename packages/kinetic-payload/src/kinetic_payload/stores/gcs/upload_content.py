"""Content of an upload, read at any offset, with its checksum."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, Final

from kinetic_payload.digests import FileCheck
from kinetic_payload.errors import StoreError
from kinetic_payload.stores.gcs.checksums import extended
from kinetic_payload.threads import check_wanted

BLOCK: Final = 1 << 20
_STEP: Final = 8 * BLOCK


class Content:
    """The bytes of a stream, which are read repeatedly, by one thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = stream.seek(0, io.SEEK_END)

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Return the content *data*."""
        return cls(io.BytesIO(data))

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes from *offset* on."""
        self._stream.seek(offset)
        return self._stream.read(size)


class ContentChecksum:
    """The checksum of a content up to any offset, without reading bytes twice.

    A *check* receives the same bytes.
    """

    def __init__(self, content: Content, check: FileCheck | None = None) -> None:
        self._content = content
        self._known = [(0, check.copy() if check else None)]
        """Checksum and check at each multiple of the step."""
        self._at = 0
        self._crc = 0
        self._check = check

    def up_to(self, offset: int) -> int:
        """Return the checksum of the first *offset* bytes."""
        if offset < self._at:
            step = min(offset // _STEP, len(self._known) - 1)
            self._at = step * _STEP
            self._crc, check = self._known[step]
            self._check = check.copy() if check else None
        for _ in self.blocks(self._at, offset):
            pass
        return self._crc

    def whole(self) -> int:
        """Return the checksum of the whole content; raise if the check does not accept it."""
        whole = self.up_to(self._content.size)
        if self._check is not None:
            self._check.finish()
        return whole

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Iterate over the bytes from *start* to *end*, and include them in the checksum.

        Raises:
            StoreError: The content has fewer bytes.
        """
        if start != self._at:
            self.up_to(start)
        while start < end:
            check_wanted()
            data = self._content.read_at(start, min(BLOCK - start % BLOCK, end - start))
            if not data:
                if self._check is not None:
                    self._check.finish()
                raise StoreError("A file became shorter while it was uploaded.")
            start += len(data)
            self._crc, self._at = extended(self._crc, data), start
            if self._check is not None:
                self._check.update(data)
            if start == len(self._known) * _STEP:
                self._known.append((self._crc, self._check.copy() if self._check else None))
            yield data
