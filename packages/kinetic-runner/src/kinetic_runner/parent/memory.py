"""Memory of this process's control group: its limit, the peak of its use, and OOM kills that the kernel counted."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_NO_LIMIT: Final = 2**60
"""The first version of control groups writes a number of about 2**63 where there is no limit."""


def oom_kills() -> int | None:
    """Return how many OOM kills there were in this control group.

    None where the kernel does not count them: outside Linux, or without control groups.
    """
    for line in _text("memory.events", "memory.oom_control").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None


def peak_memory(*, in_container: bool) -> int | None:
    """Return the most bytes that this process and its descendants used at once.

    In a container it is the peak of the control group, which includes the file cache. Elsewhere other processes
    share the group: then it is the peak of the largest process that has ended and that this process waited for.
    """
    # memory.peak exists since Linux 5.19: https://docs.kernel.org/admin-guide/cgroup-v2.html
    if in_container:
        peak = _text("memory.peak", "memory.max_usage_in_bytes")
        if peak.isdigit():
            return int(peak)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # Kibibytes on Linux, bytes on macOS: getrusage(2) of both.
    return largest * (1 if sys.platform == "darwin" else 1024) or None


def memory_limit() -> int | None:
    """Return the most bytes that this control group may use; None if it has no limit, or none that is shown.

    In a container this is the container's limit.
    """
    # Within a container a group of its own may have no limit.
    texts = _texts("memory.max", "memory.limit_in_bytes")
    limit = next((int(text) for text in texts if text.isdigit()), _NO_LIMIT)
    return limit if limit < _NO_LIMIT else None


def _text(second_version: str, first_version: str) -> str:
    """Return the text in the file of this control group; "" without one."""
    return next(_texts(second_version, first_version), "")


def _texts(second_version: str, first_version: str) -> Iterator[str]:
    """Iterate over the texts of this control group's file, and of the root's, of either version of control groups."""
    groups = ""
    with suppress(OSError):
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = "/sys/fs/cgroup", second_version
        elif "memory" in controllers.split(","):
            root, name = "/sys/fs/cgroup/memory", first_version
        else:
            continue
        for folder in (f"{root}{path}", root):
            with suppress(OSError, UnicodeDecodeError):
                yield Path(folder, name).read_text(encoding="ascii").strip()
