"""(child) Write standard output and error completely."""

from __future__ import annotations

import io
import os
import sys


class _CompleteWriter(io.FileIO):
    """A file that writes all bytes it is given.

    If a signal comes in the middle of a large write (a profiler's timer, a laptop that wakes up), the
    system writes only a part. Python's unbuffered streams (`python -u`) drop the rest.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        done = 0
        with memoryview(data) as original, original.cast("B") as view:
            while done < len(view):
                written = super().write(view[done:])
                if written is None:  # User code made it non-blocking, and it is full.
                    import select

                    select.select([], [self.fileno()], [])
                done += written or 0
        return done


def write_completely() -> None:
    """Make `sys.stdout` and `sys.stderr` write all bytes they are given, where they are unbuffered."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            continue
        raw = _CompleteWriter(stream.fileno(), "w", closefd=False)
        raw.name = stream.name
        complete = io.TextIOWrapper(
            raw,  # As Python itself does for `-u`.
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=stream.line_buffering,
            write_through=True,
        )
        complete.mode = "w"  # type: ignore[misc]
        setattr(sys, name, complete)
        setattr(sys, f"__{name}__", complete)


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


def print_error(text: str) -> None:
    """Write *text* to standard error, the end of the job's log, if that is still possible."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # noqa: BLE001  # user code may have put anything there, or closed it
        return


def identity(fd: int) -> tuple[int, int] | None:
    """Return device and inode of the file behind descriptor *fd*; None if it is not open."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino
