"""A stream that only counts bytes, to find out whether a value can be pickled, and how large it becomes."""

from __future__ import annotations

import sys
from typing import Any

from kinetic_payload.errors import PayloadError


class TooLargeError(PayloadError):
    """A value has more bytes than were asked for."""


class ByteCounter:
    """A stream that keeps only the number of bytes. It raises `TooLargeError` beyond *most* bytes."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.size = 0
        self._most = most

    def write(self, data: Any) -> int:
        """Count *data*."""
        size = memoryview(data).nbytes  # A large array comes as `pickle.PickleBuffer`.
        self.size += size
        if self.size > self._most:
            raise TooLargeError(f"It has more than {self._most} bytes.")
        return size
