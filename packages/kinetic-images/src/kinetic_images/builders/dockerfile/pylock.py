"""`pylock.toml` of a recipe: exactly its files, for `uv pip install` inside a build.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

from kinetic_images.lock.packages import LockedPackage

FOLDER: Final = "packages"
"""The folder beside the lock with files from this machine."""


def is_local(package: LockedPackage) -> bool:
    """Return whether the file of *package* is on this machine, so that it travels with the build context."""
    return package.local_path is not None


def is_repository(package: LockedPackage) -> bool:
    """Return whether *package* is a commit of a repository."""
    return not package.file


def repository_url(package: LockedPackage) -> str:
    """Return the address of the repository of *package*, as git takes it."""
    return package.address.removeprefix("git+")


def pylock(packages: Iterable[LockedPackage], python: str) -> str:
    """Return the lock file that installs *packages* for CPython *python*, in the order of their names."""
    lines = [
        'lock-version = "1.0"',
        'created-by = "kinetic"',
        f"requires-python = {_text(f'=={python}.*')}",
    ]
    for package in sorted(packages):
        lines += ["", "[[packages]]", f"name = {_text(package.name)}"]
        if package.version:
            lines.append(f"version = {_text(package.version)}")
        lines += _source(package)
    return "\n".join(lines) + "\n"


def _source(package: LockedPackage) -> Iterator[str]:
    if is_repository(package):
        vcs = {"type": "git", "url": repository_url(package), "commit-id": package.sha256}
        yield f"vcs = {_table(vcs | _subdirectory(package))}"
        return
    place = {"path": f"{FOLDER}/{package.file}"} if is_local(package) else {"url": package.address}
    size = {} if package.size is None else {"size": package.size}
    file = {"name": package.file, **place, **size, "hashes": {"sha256": package.sha256}}
    if package.is_wheel:
        yield f"wheels = [{_table(file)}]"
    elif _is_sdist(package):
        yield f"sdist = {_table(file)}"
    else:
        del file["name"]
        yield f"archive = {_table(file | _subdirectory(package))}"


def _subdirectory(package: LockedPackage) -> dict[str, object]:
    return {"subdirectory": package.subdirectory} if package.subdirectory else {}


def _is_sdist(package: LockedPackage) -> bool:
    """Return whether it is a source archive as indexes have them, and not any archive of a project."""
    if package.subdirectory or not package.version:
        return False
    try:
        name, version = parse_sdist_filename(package.file)
    except InvalidSdistFilename:
        return False
    return name == canonicalize_name(package.name) and str(version) == package.version


def _table(values: Mapping[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in values.items()) + " }"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return _table(value)
    return str(value) if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    # A JSON string is a basic string of TOML, apart from U+007F.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
