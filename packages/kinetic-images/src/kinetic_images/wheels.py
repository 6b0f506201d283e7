"""Wheels of Kinetic's own distributions, built from their installed files, never taken from an index."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import DependencyError
from kinetic_payload.distributions import DISTRIBUTIONS
from kinetic_payload.files.private import make_folder, read_private, write_private

FOLDER: Final = ("cache", "wheels")
"""The folder in a home of wheels that are built from installed packages, as parts of its path."""
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: kinetic\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_PACKAGES: Final = {str(canonicalize_name(name)): key for key, name in DISTRIBUTIONS.items()}


class _InstalledWheels(Mapping[str, Path]):
    """The wheels of Kinetic's installed distributions, by name; each is built in *folder* when it is looked up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = [name for name in _PACKAGES if _distribution(name) is not None]

    def __getitem__(self, name: str) -> Path:
        if name not in self._names:
            raise KeyError(name)
        return own_wheels(self._folder, [name])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def own_wheels_of(
    dependencies: Dependencies, home: Path
) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
    """Return the wheels in *home* of Kinetic's distributions that *dependencies* require, by requirement, and of all.

    They are `own` and `fallback` of a `LockRequest`.

    Raises:
        DependencyError: A distribution that they name is not installed here.
    """
    folder = home.joinpath(*FOLDER)
    extras: dict[str, set[str]] = {}
    for requirement in dependencies.own:
        extras.setdefault(requirement.name, set()).update(requirement.extras)
    closure = own_closure(extras)
    names = (f"{name}[{','.join(chosen)}]" if chosen else name for name, chosen in closure.items())
    return dict(zip(names, own_wheels(folder, closure), strict=True)), _InstalledWheels(folder)


def own_closure(wanted: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Return *wanted* (name → extras) and all of Kinetic's own distributions that these require.

    Raises:
        DependencyError: One of these distributions is not installed here.
    """
    closure: dict[str, set[str]] = {}
    todo = [(str(canonicalize_name(name)), set(extras)) for name, extras in wanted.items()]
    while todo:
        name, extras = todo.pop()
        known = closure.get(name)
        if known is not None and extras <= known:
            continue
        closure[name] = extras = (known or set()) | extras
        for line in _installed(name).requires or []:
            requirement = Requirement(line)
            required = str(canonicalize_name(requirement.name))
            marker = requirement.marker
            if required in _PACKAGES and (
                marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
            ):
                todo.append((required, set(requirement.extras)))
    return {name: tuple(sorted(extras)) for name, extras in sorted(closure.items())}


def own_wheels(dest: Path, names: Iterable[str]) -> list[Path]:
    """Build wheels of Kinetic's own distributions *names* in *dest*, from their installed files.

    Regular and editable installations give the same wheel for the same files. A wheel lies in a
    folder that is named by the wheel's digest, so an existing wheel is reused.

    Raises:
        DependencyError: One of the distributions is not installed here.
    """
    wanted = sorted({str(canonicalize_name(written)) for written in names})
    for name in wanted:
        if name not in _PACKAGES:
            raise DependencyError(
                f"{name!r} is not one of Kinetic's own packages.",
                hint=f"They are {', '.join(sorted(_PACKAGES))}.",
            )
    return [copied_wheel(dest, name, _PACKAGES[name]) for name in wanted]


def copied_wheel(dest: Path, name: str, package: str) -> Path:
    """Build a wheel of the installed distribution *name* in *dest*.

    The distribution contains one *package*, in pure Python.

    Raises:
        DependencyError: The distribution is not installed here.
    """
    distribution = _installed(name)
    metadata = distribution.read_text("METADATA") or ""
    stem = f"{name.replace('-', '_')}-{distribution.version}"
    info = f"{stem}.dist-info"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(name)
    root = Path(next(iter(spec.submodule_search_locations)))
    files: dict[str, bytes] = {}
    for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
        inner = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inner.parts)
        if not hidden and path.suffix not in (".pyc", ".pyo") and path.is_file():
            files[f"{package}/{inner.as_posix()}"] = path.read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    entry_points = distribution.read_text("entry_points.txt")
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points.encode()
    rows = []
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{file},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    buffer = io.BytesIO()
    # Stored without compression: compressors on different machines write different bytes.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    data = buffer.getvalue()
    folder = dest / hashlib.sha256(data).hexdigest()[:32]
    path = folder / f"{stem}-py3-none-any.whl"
    with suppress(OSError):
        if read_private(path) == data:
            return path
    make_folder(folder)
    write_private(path, data)
    return path


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _installed(name: str) -> importlib.metadata.Distribution:
    distribution = _distribution(name)
    if distribution is None:
        raise _missing(name)
    return distribution


def _missing(name: str) -> DependencyError:
    return DependencyError(
        f"{name} is required, but is not installed here, so it cannot be copied.",
        hint="Install it here, or remove the line: a job needs none of Kinetic's packages by name.",
    )
