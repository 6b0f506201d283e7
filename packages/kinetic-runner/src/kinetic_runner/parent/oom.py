"""OOM kills that the kernel counts in this process's control group."""

from __future__ import annotations

from pathlib import Path


def oom_kills() -> int | None:
    """Return how many OOM kills there were in this control group.

    None where the kernel does not count them: outside Linux, or without control groups.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = [f"/sys/fs/cgroup{path}/memory.events", "/sys/fs/cgroup/memory.events"]
        elif "memory" in controllers.split(","):
            root = "/sys/fs/cgroup/memory"
            files = [f"{root}{path}/memory.oom_control", f"{root}/memory.oom_control"]
        else:
            continue
        for file in files:
            count = _count_in(file)
            if count is not None:
                return count
    return None


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
