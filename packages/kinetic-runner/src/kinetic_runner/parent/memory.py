"""Memory of this process's control group: its limit, the peak of its use, and OOM kills that the kernel counted."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_NO_LIMIT: Final = 2**60
"""The first version of control groups writes a number of about 2**63 where there is no limit."""


def oom_kills() -> int | None:
    """Return how many OOM kills there were in this control group.

    None where the kernel does not count them: outside Linux, or without control groups.
    """
    return _first(_count_in, "memory.events", "memory.oom_control")


def peak_memory(*, in_container: bool) -> int | None:
    """Return the most bytes that this process and its descendants used at once.

    In a container it is the peak of the control group, which includes the file cache. Elsewhere other processes
    share the group: then it is the peak of the largest process that has ended and that this process waited for.
    """
    # memory.peak exists since Linux 5.19: https://docs.kernel.org/admin-guide/cgroup-v2.html
    if in_container:
        peak = _first(_number_in, "memory.peak", "memory.max_usage_in_bytes")
        if peak is not None:
            return peak
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # Kibibytes on Linux, bytes on macOS: getrusage(2) of both.
    return largest * (1 if sys.platform == "darwin" else 1024) or None


def memory_limit() -> int | None:
    """Return the most bytes that this control group may use; None if it has no limit, or none that is shown.

    In a container this is the container's limit.
    """
    limit = _first(_number_in, "memory.max", "memory.limit_in_bytes")
    return None if limit is None or limit >= _NO_LIMIT else limit


def _first(read: Callable[[str], T | None], second_version: str, first_version: str) -> T | None:
    """Return what *read* finds in the file of this control group, of either version of control groups."""
    for folder, name in _folders(second_version, first_version):
        found = read(f"{folder}/{name}")
        if found is not None:
            return found
    return None


def _folders(second_version: str, first_version: str) -> Iterator[tuple[str, str]]:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = "/sys/fs/cgroup", second_version
        elif "memory" in controllers.split(","):
            root, name = "/sys/fs/cgroup/memory", first_version
        else:
            continue
        yield f"{root}{path}", name
        yield root, name


def _number_in(file: str) -> int | None:
    try:
        text = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def _count_in(file: str) -> int | None:
    try:
        lines = Path(file).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None
