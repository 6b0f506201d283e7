"""Compiled files of a project that the worker cannot load: those for macOS, in a job on Linux."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SHOWN = 5


def built_for_macos(paths: Iterable[str]) -> list[str]:
    """Return those of *paths* that only macOS can load and that have no counterpart for Linux."""
    found, elsewhere = [], set()
    compiled = [path for path in paths if ".so" in path or path.endswith(".dylib")]
    for path in compiled:
        if path.endswith(("-darwin.so", ".dylib")):
            found.append(path)
        elif path.endswith(".so") or ".so." in path:
            elsewhere.add(_module_path(path))
    return sorted(path for path in found if _module_path(path) not in elsewhere)


def binaries_warning(paths: Iterable[str], *, platform: str) -> str | None:
    """Return a warning about a project with *paths* whose job runs on *platform*, or None.

    Args:
        platform: A value of `sys.platform`.
    """
    useless = [] if platform == "darwin" else built_for_macos(paths)
    if not useless:
        return None
    return (
        f"{_few(useless)}: built for macOS; the job runs on Linux, which cannot load such files. Build "
        "them for Linux, or add their package to the requirements. A line in .kineticignore leaves them out."
    )


def _few(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_SHOWN])
    more = len(paths) - _SHOWN
    return f"{shown} and {more} more files" if more > 0 else shown


def _module_path(path: str) -> str:
    """Return *path* up to the first dot of its name: `pkg/_fast.cpython-311-darwin.so` → `pkg/_fast`."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"
