"""(child) Write standard output and error completely."""

from __future__ import annotations

import io
import os
import sys


class _Whole(io.FileIO):
    """A file that writes all bytes it is given.

    If a signal comes in the middle of a large write (a profiler's timer, a laptop that wakes up), the
    system writes a part. Python's unbuffered streams (`python -u`) drop the rest.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        done = 0
        with memoryview(data) as given, given.cast("B") as view:
            while done < len(view):
                written = super().write(view[done:])
                if written is None:  # User code made it non-blocking, and it is full.
                    import select

                    select.select([], [self.fileno()], [])
                done += written or 0
        return done


def write_whole() -> None:
    """Replace `sys.stdout` and `sys.stderr` by such files, where they are unbuffered."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            continue
        raw = _Whole(stream.fileno(), "w", closefd=False)
        raw.name = stream.name
        whole = io.TextIOWrapper(
            raw,  # As Python itself does for `-u`.
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=stream.line_buffering,
            write_through=True,
        )
        whole.mode = "w"  # type: ignore[misc]
        setattr(sys, name, whole)
        setattr(sys, f"__{name}__", whole)


def flush() -> None:
    """Flush the buffers of Python and C, because `os._exit` does not."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None:
                stream.flush()
        except Exception:  # noqa: BLE001, S112  # user code may have put anything there
            continue
    try:
        import ctypes

        ctypes.CDLL(None).fflush(None)
    except (ImportError, OSError, AttributeError):
        return


def identity(fd: int) -> tuple[int, int] | None:
    """Return what tells the file of descriptor *fd* from others; None if none is open there."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino
