"""A stream that only counts bytes, to find out whether a value can be pickled, and how large it becomes."""

from __future__ import annotations

from math import inf
from typing import Any


class ByteCounter:
    """A stream that keeps only the number of bytes, and takes no more than *most*."""

    def __init__(self, most: float = inf) -> None:
        self.size = 0
        self._most = most

    def write(self, data: Any) -> int:
        """Count *data*."""
        size = memoryview(data).nbytes  # A large array comes as `pickle.PickleBuffer`.
        self.size += size
        if self.size > self._most:
            raise OverflowError(f"more than {self._most} bytes")
        return size
