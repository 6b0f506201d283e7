"""A stream that only counts bytes, to find out whether a value can be pickled, and how large it becomes."""

from __future__ import annotations

from typing import Any


class ByteCounter:
    """A stream that keeps only the number of bytes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        """Count *data*."""
        size = memoryview(data).nbytes  # A large array comes as `pickle.PickleBuffer`.
        self.size += size
        return size
