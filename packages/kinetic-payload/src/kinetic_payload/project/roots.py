"""Roots of projects: the folder that is shipped with a function, and the job's `sys.path` and folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from unicodedata import is_normalized, normalize

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.frozen import frozen

Kind = Literal["script", "module", "notebook", "interactive"]

MARKERS: Final = ("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", ".git")
"""Files that make a folder the root of a project."""

OVERRIDE: Final = "KINETIC_PACKAGE_ROOT"

_MAINS: Final = ("__main__", "__mp_main__")
_THIRD_PARTY: Final = frozenset(("site-packages", "dist-packages", "__pypackages__"))
_STDLIB: Final = os.path.dirname(os.path.realpath(os.__file__))  # noqa: PTH120


@frozen()
class Entry:
    """The place of a function, and how Python was started."""

    file: Path | None
    """The file of the module that defines the function; None in a notebook, a REPL, `python -c`."""
    module: str | None
    """The dotted name of that module; None if it cannot be imported."""
    kind: Kind
    """How `__main__` was started."""
    main: Path | None = None
    """The file of `__main__`."""


@frozen()
class ProjectPlan:
    """The folder that is shipped, and the worker's `sys.path`, working directory and `__main__`."""

    root: Path | None
    """None if no files are shipped: code without a file, typed in the home directory or in `/`."""
    paths: tuple[str, ...]
    """Entries of `sys.path` relative to the root, `/`-separated, in order; "" is the root."""
    cwd: str
    """The working directory relative to the root; "" also if it is outside."""
    main: str | None
    """The script of `__main__` relative to the root, if it is shipped."""
    kind: Kind
    script: Path | None = None
    """The script that was started, if it defines the function."""
    base: Path | None = field(default=None, compare=False)
    """The folder with the outermost package of the function, or the root if that is not above it."""


def entry_of(function: Any) -> Entry:
    """Find the place of *function*, also inside partials, methods, wrappers and callable objects."""
    function = _unwrapped(function)
    name = getattr(function, "__module__", None)
    main = main_namespace(function)
    if _is_of_program(main):
        # A program that runs the user's code, such as pytest or the prompt of Python 3.13, is not user code.
        main = {}
    main_file = _file_of(main)
    # `coverage run`, `python -m cProfile` and a folder with a `__main__.py` have a spec called `__main__`.
    if getattr(main.get("__spec__"), "name", "__main__") not in _MAINS:
        kind: Kind = "module"
    elif main_file is not None:
        kind = "script"
    else:
        # Do not import ipykernel: only a notebook loads it.
        kind = "notebook" if "ipykernel" in sys.modules else "interactive"
    if name in _MAINS:
        return Entry(main_file, _module_name(main), kind, main_file)
    module = sys.modules.get(name) if isinstance(name, str) else None
    found = {} if module is None else vars(module)
    file = _file_of(found)
    if file is None and (code := getattr(function, "__code__", None)) is not None:
        # Its loader registered no module; the code object still has the file.
        file = _existing_file(code.co_filename)
    if file is None or _is_third_party(file):
        # A function of a library: the project is that of its caller.
        return Entry(main_file, _module_name(main), kind, main_file)
    return Entry(file, _module_name(found), kind, main_file)


def _unwrapped(function: Any) -> Any:
    """Unwrap *function* to the function or class that was defined."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        inner = getattr(function, "__wrapped__", None)
        if inner is None and type(function).__name__ in ("partial", "partialmethod"):
            inner = getattr(function, "func", None)
        if inner is None:
            inner = getattr(function, "__func__", None)
        if inner is None and not isinstance(function, type) and not hasattr(function, "__code__"):
            # A callable object is found by its class; a built-in has no Python `__call__`.
            call = getattr(type(function), "__call__", None)  # noqa: B004
            inner = call if hasattr(call, "__code__") else None
        if inner is None:
            break
        function = inner
    return function


def main_namespace(function: Any) -> dict[str, Any]:
    """Return the globals of the entry script: those of `__main__`, nearly always.

    Profilers and tracers stay `__main__` themselves, and run the script in globals that belong to no
    module (`python -m cProfile`, before Python 3.12; `python -m trace`). Then *function*, or a function
    that is running now, has these globals.
    """
    main = vars(sys.modules["__main__"])
    if not _is_of_program(main):
        return main
    candidates = [getattr(_unwrapped(function), "__globals__", {})]
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        candidates.append(frame.f_globals)
    for candidate in candidates:
        if candidate.get("__name__") == "__main__" and not _is_of_program(candidate):
            return candidate
    return main


def _is_of_program(namespace: dict[str, Any]) -> bool:
    """Return whether the entry script is a program of the environment rather than the user's."""
    file = _file_of(namespace)
    if file is None:
        return False
    return _is_third_party(file) or str(file.parent) == os.path.dirname(sys.executable)  # noqa: PTH120


def _file_of(namespace: dict[str, Any]) -> Path | None:
    file = namespace.get("__file__")
    if file is None:
        # `python -m` keeps the file in the spec; a namespace package has none.
        file = getattr(namespace.get("__spec__"), "origin", None)
    return _existing_file(file) if isinstance(file, str) else None


def _existing_file(file: str) -> Path | None:
    path = Path(os.path.abspath(file))  # noqa: PTH100
    return path if path.is_file() else None


def _module_name(namespace: dict[str, Any]) -> str | None:
    """Return the dotted name that leads to the module's file; None for scripts and notebooks."""
    name = getattr(namespace.get("__spec__"), "name", None) or namespace.get("__name__")
    return name if isinstance(name, str) and name not in _MAINS else None


def plan_project(
    entry: Entry, *, sys_path: Sequence[str], cwd: Path, home: Path, override: str | None
) -> ProjectPlan:
    """Decide which folder is shipped, and which parts of `sys.path` and the working directory are in it.

    Args:
        override: The value of `KINETIC_PACKAGE_ROOT`, if it is set.

    Raises:
        InvalidRequestError: The override is not a folder that contains the function's file, or the root of
            a file's project would be the home directory or `/`.
    """
    cwd = _plain(cwd)
    base = _base(entry, cwd)
    root = _root_from_override(override, entry, cwd, home) if override else _find_root(base, home)
    if root is None:
        if entry.file is None:
            return ProjectPlan(root=None, paths=(), cwd="", main=None, kind=entry.kind)
        raise InvalidRequestError(
            f"The project would be all of {base}, because the code lies directly there.",
            hint=f"Move the code into a folder of its own, or set {OVERRIDE} to the folder to ship.",
        )
    main = entry.main or (entry.file if entry.module is None else None)
    main_path = _inside(main, root) if main is not None else None
    if main is not None and main_path is not None and _is_environment(main.parent, root):
        main_path = None
    candidates = [cwd / path for path in sys_path]
    if entry.kind == "script" and main is not None:
        candidates.insert(0, main.parent)
    if entry.module is not None:
        # An editable install through an import hook leaves no path entry.
        candidates.append(base)
    shipped = partial(composed_path, str(root))
    paths = [
        shipped(inside)
        for path in candidates
        if path.exists()
        and (inside := _inside(path, root)) is not None
        and not _is_environment(path, root)
    ]
    return ProjectPlan(
        root=root,
        paths=tuple(dict.fromkeys(paths)),
        cwd=shipped(_inside(cwd, root) or ""),
        main=main_path if main_path is None else shipped(main_path),
        kind=entry.kind,
        script=entry.file if entry.kind == "script" and entry.file == entry.main else None,
        base=base if base.is_relative_to(root) else root,
    )


def _base(entry: Entry, cwd: Path) -> Path:
    """Return the folder that contains the entry's outermost package."""
    if entry.file is None:
        return cwd
    file = _plain(entry.file)
    if entry.module is not None:
        parts = entry.module.split(".")
        own = list(file.with_suffix("").parts)
        # Compiled modules are called `name.cpython-311-….so`.
        own[-1] = own[-1].partition(".")[0]
        if own[-1] == "__init__" and parts[-1] != "__init__":
            own.pop()
        if own[-len(parts) :] == parts:
            return Path(*own[: -len(parts)])
    folder = file.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _find_root(base: Path, home: Path) -> Path | None:
    """Return the nearest folder with a marker, from *base* upwards; else *base*, if it can be a root."""
    home = _plain(home)
    # Neither the home directory nor a folder that contains it is a project, even with a marker.
    off_limits = {
        _identity(path)
        for known in (home, Path(os.path.realpath(home)))
        for path in (known, *known.parents)
    }
    for folder in (base, *base.parents):
        if _identity(folder) in off_limits or folder == folder.parent:
            break
        if any((folder / marker).exists() for marker in MARKERS):
            return folder
    return None if _identity(base) in off_limits or base == base.parent else base


def _identity(folder: Path) -> object:
    """Return the identity of *folder*, the same for every form of its path (`/users/me` on macOS)."""
    try:
        found = folder.stat()
    except OSError:
        return folder
    return found.st_dev, found.st_ino


def _root_from_override(override: str, entry: Entry, cwd: Path, home: Path) -> Path:
    text = re.sub(r"^~(?=/|$)", lambda _: str(home), override)
    root = _plain(cwd / text)
    if not root.is_dir():
        raise InvalidRequestError(
            f"{OVERRIDE}={override} is not a folder.", hint="Set it to your project's folder."
        )
    if entry.file is not None and _inside(entry.file, root) is None:
        raise InvalidRequestError(
            f"{OVERRIDE}={override} does not contain {entry.file}, which defines the function.",
            hint="Set it to a folder that contains the function's file, or unset it.",
        )
    return root


def _plain(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100


def _inside(path: Path, root: Path) -> str | None:
    """Return *path* relative to *root*: "" if they are the same, None if it is outside."""
    pairs = (
        (_plain(path), root),
        # Entries of `sys.path` and files of modules may differ in whether links are resolved.
        (Path(os.path.realpath(path)), Path(os.path.realpath(root))),
    )
    for inner, outer in pairs:
        if inner.is_relative_to(outer):
            relative = inner.relative_to(outer).as_posix()
            return "" if relative == "." else relative
    return None


def composed_path(root: str, path: str) -> str:
    """Return *path* in *root* as it is in a snapshot: in NFC, if the file system finds it in that form, too.

    A folder of macOS may list a name in another form, which is a different name on Linux.
    """
    if is_normalized("NFC", path):
        return path
    composed = normalize("NFC", path)
    try:
        found, same = (os.lstat(f"{root}/{each}") for each in (path, composed))
    except OSError:
        return path
    return composed if os.path.samestat(found, same) else path


def _is_third_party(file: Path) -> bool:
    """Return whether *file* belongs to the interpreter or to something installed."""
    real = os.path.realpath(file)
    return not _THIRD_PARTY.isdisjoint(file.parts) or real.startswith(_STDLIB + os.sep)


def _is_environment(path: Path, root: Path) -> bool:
    """Return whether *path*, in *root*, belongs to an installation of Python."""
    relative = _inside(path, root)
    if relative is None or _is_third_party(path / "x"):
        return True
    folder = root
    for part in relative.split("/") if relative else ():
        folder /= part
        if (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists():
            return True
    return False
