"""A memory limit for one host: the kernel's where it may be set, else by watching its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol


class MemoryLimit(Protocol):
    """A limit for one runner and all it starts."""

    def start(self, spawn: Callable[[], int]) -> int:
        """Call *spawn*, which returns a pid, so that its process never runs without the limit; return the pid."""
        ...

    @property
    def interval(self) -> float | None:
        """Seconds between calls of `exceeded` that the limit needs; None if the kernel enforces it."""
        ...

    def exceeded(self) -> bool:
        """Return whether a process was killed because of it."""
        ...

    def close(self) -> None:
        """Remove it, once no process runs under it."""
        ...


def limit_memory(name: str, limit: int) -> MemoryLimit:
    """Make a limit of *limit* bytes, for the process that is started under it."""
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
    """A cgroup of our own below the one we live in."""

    interval = None

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
        # Started in it: a runner that is moved later could have started a process before.
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
        for line in self._events.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value) > 0
        raise OSError(f"{self._events} does not count what was killed.")

    def close(self) -> None:
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
            # It is not reaped yet, so the id is its own; later psutil compares its start time.
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
        family = [runner, *children]
        # Pages that a pool's processes share must count once; measuring that takes longer.
        measures = (resident_memory, own_memory)
        if any(_total(family, measure) <= self._limit for measure in measures):
            return False
        self._exceeded = True
        for child in children:  # The runner is spared, and reports.
            with suppress(psutil.Error):
                child.kill()
        return True

    def close(self) -> None:
        """Nothing to remove."""


def own_memory(process: psutil.Process) -> int:  # type: ignore[name-defined]  # noqa: F821
    """Return the bytes of *process* that are in memory, those it shares with others in part.

    Where only root may ask for that of another process, as on macOS, shared ones count wholly.
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


def _total(
    family: list[psutil.Process],  # type: ignore[name-defined]  # noqa: F821
    measure: Callable[[psutil.Process], int],  # type: ignore[name-defined]  # noqa: F821
) -> int:
    import psutil

    total = 0
    for process in family:
        with suppress(psutil.Error):
            total += measure(process)
    return total
