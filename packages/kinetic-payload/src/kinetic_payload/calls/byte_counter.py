"""A stream that keeps nothing but the number of bytes: pickling into it only asks whether, and to how many."""

from __future__ import annotations

from typing import Any


class ByteCounter:
    """A stream that keeps nothing but the number of bytes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        """Count *data*."""
        size = memoryview(data).nbytes  # A large array comes as `pickle.PickleBuffer`.
        self.size += size
        return size
