"""Reading an open, locked file several times without closing it."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, BinaryIO, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER: Final = 1 << 20


def open_shared(fd: int, size: int) -> BinaryIO:
    """Return a stream of the first *size* bytes of the open file *fd*, which stays open.

    Closing any descriptor of a file drops its lock, so the file is not opened again.
    """
    return cast(BinaryIO, io.BufferedReader(_Shared(fd, size), _BUFFER))


class _Shared(io.RawIOBase):
    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._left = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)[: self._left]
        count = os.preadv(self._fd, [view], self._position)
        self._position += count
        self._left -= count
        return count
