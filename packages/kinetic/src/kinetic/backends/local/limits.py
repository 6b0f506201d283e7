"""A memory limit for one host: enforced by the kernel if permitted, else by watching its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def limit_memory(name: str, limit: int) -> MemoryLimit:
    """Create a memory limit of *limit* bytes; its `start` starts the process under it."""
    for version, parent in _own_groups():
        group = parent / f"kinetic-{name}"
        try:
            return _Cgroup(group, version, limit)
        except OSError:
            with suppress(OSError):
                group.rmdir()
    return _WatchedLimit(limit)


def _own_groups() -> list[tuple[int, Path]]:
    """Return the cgroups of this process that can count memory, with their version."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return []
    found = []
    for mount in mounts:
        _, folder, kind, options, *_ = mount.split(" ")
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if kind == "cgroup" and controllers == "memory" and "memory" in options.split(","):
                found.append((1, Path(folder + path)))
            elif kind == "cgroup2" and controllers == "":
                found.append((2, Path(folder + path)))
    return found


class _Cgroup:
    """A new cgroup below the cgroup of this process."""

    interval = None
    """Seconds between calls of `exceeded` that the limit needs; None: the kernel enforces it."""

    def __init__(self, group: Path, version: int, limit: int) -> None:
        self._group = group
        self._events = group / ("memory.oom_control" if version == 1 else "memory.events")
        group.mkdir()
        maximum = "memory.limit_in_bytes" if version == 1 else "memory.max"
        swap = "memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max"
        _write(group / maximum, str(limit))
        with suppress(OSError):  # Where swap is not counted, it is not limited.
            _write(group / swap, str(limit) if version == 1 else "0")
        self.exceeded()
        with self._inside():  # Fail now if this process may not move in and out.
            pass

    def start(self, spawn: Callable[[], int]) -> int:
        """Start a process with *spawn*, from its first moment under the limit; return its pid."""
        # Started inside the cgroup: a process that a runner starts before it is moved would stay outside.
        with self._inside():
            return spawn()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        me = str(os.getpid())
        try:
            _write(self._group / "cgroup.procs", me)
            yield
        finally:
            _write(self._group.parent / "cgroup.procs", me)

    def exceeded(self) -> bool:
        """Return whether a process was killed because of the limit."""
        for line in self._events.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value) > 0
        raise OSError(f"{self._events} does not count killed processes.")

    def close(self) -> None:
        """Remove the limit, once no process runs under it."""
        with suppress(OSError):
            self._group.rmdir()


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


class _WatchedLimit:
    """Measures the processes periodically, and kills the runner's descendants if they are too large."""

    interval = 0.2

    def __init__(self, limit: int) -> None:
        self._runner: psutil.Process | None = None  # type: ignore[name-defined]  # noqa: F821
        self._limit = limit
        self._exceeded = False

    def start(self, spawn: Callable[[], int]) -> int:
        import psutil

        pid = spawn()
        with suppress(psutil.Error):
            # It is not reaped yet, so the id is still its own. Later psutil compares its start time.
            self._runner = psutil.Process(pid)
        return pid

    def exceeded(self) -> bool:
        import psutil

        runner = self._runner
        if self._exceeded or runner is None:
            return self._exceeded
        try:
            children = runner.children(recursive=True)
        except psutil.Error:
            return False
        # Pages that the processes of a pool share must count once. That takes longer, so it is measured second.
        for measure in (resident_memory, own_memory):
            total = 0
            for process in (runner, *children):
                with suppress(psutil.Error):
                    total += measure(process)
            if total <= self._limit:
                return False
        self._exceeded = True
        for child in children:  # Not the runner: it reports.
            with suppress(psutil.Error):
                child.kill()
        return True

    def close(self) -> None:
        """Nothing to remove."""


MemoryLimit = _Cgroup | _WatchedLimit
"""A memory limit for one runner and all processes that it starts."""


def own_memory(process: psutil.Process) -> int:  # type: ignore[name-defined]  # noqa: F821
    """Return the bytes of *process* that are in memory; pages shared with other processes count in part.

    If this process may not measure that, as on macOS without root, shared pages count fully.
    """
    import psutil

    try:
        full = process.memory_full_info()
    except psutil.AccessDenied:
        return resident_memory(process)
    return int(getattr(full, "pss", full.uss))


def resident_memory(process: psutil.Process) -> int:  # type: ignore[name-defined]  # noqa: F821
    """Return the bytes of *process* that are in memory."""
    return int(process.memory_info().rss)
