"""Folders of packages on this machine: `--find-links` and local indexes, whose paths differ between machines."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kinetic_images.dependencies import Dependencies

_OPTIONS: Final = ("--find-links", "--index-url", "--extra-index-url")
_SETTINGS: Final = ("find-links", "index-url", "extra-index-url")
_NAMED: Final = re.compile(r"(?P<name>[\w.-]+=)?(?P<address>.+)", re.DOTALL)


@dataclass(frozen=True)
class PackageFolders:
    """The places on this machine where packages of a project are."""

    flat: tuple[Path, ...]
    """Folders whose files are packages."""
    others: bool
    """Whether packages may also be elsewhere: in a local index, or where a local page links to."""

    def find(self, file: str, recorded: Path) -> Iterator[Path]:
        """Iterate over the paths where the package *file*, which was at *recorded* once, may be now."""
        for folder in self.flat:
            yield folder / file
        if self.others:
            yield recorded


def package_folders(dependencies: Dependencies) -> PackageFolders:
    """Return the places on this machine that *dependencies* name."""
    flat: dict[Path, None] = {}
    others = False

    def note(path: Path, is_flat: bool) -> str:
        nonlocal others
        if is_flat and path.is_dir():
            flat[path] = None
        else:
            others = True
        return ""

    _replaced(dependencies, note)
    return PackageFolders(tuple(flat), others)


def portable(dependencies: Dependencies) -> Dependencies:
    """Return *dependencies* with places on this machine named by the files there, for digests that machines share.

    The same files in different folders give the same digest.
    """

    def named(path: Path, _: bool) -> str:
        try:
            names = sorted(child.name for child in path.iterdir())
        except OSError:
            return path.as_uri()
        digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()
        return f"files:{digest}"

    return _replaced(dependencies, named)


def _replaced(dependencies: Dependencies, name: Callable[[Path, bool], str]) -> Dependencies:
    """Return *dependencies* with the result of *name* in place of each path on this machine."""
    folder = str(dependencies.source.parent.absolute()) if dependencies.source else "/"

    def address(text: str, is_flat: bool) -> str:
        path = _path_of(text, folder)
        return text if path is None else name(path, is_flat)

    def texts(value: Any, is_flat: bool) -> Any:
        if isinstance(value, str):
            return address(value, is_flat)
        return (
            [texts(each, is_flat) for each in value] if isinstance(value, list | tuple) else value
        )

    def index(table: Mapping[str, Any]) -> dict[str, Any]:
        return {**table, "url": address(str(table.get("url", "")), table.get("format") == "flat")}

    def settings(values: Mapping[str, Any]) -> dict[str, Any]:
        found = {
            key: texts(value, key == "find-links") if key in _SETTINGS else value
            for key, value in values.items()
        }
        if "index" in found:
            found["index"] = [index(table) for table in found["index"]]
        if isinstance(found.get("pip"), Mapping):
            found["pip"] = settings(found["pip"])
        return found

    def variable(key: str, value: str) -> str:
        separator = "," if key == "UV_FIND_LINKS" else " "
        words = []
        for word in value.split(separator):
            match = _NAMED.fullmatch(word)
            parts = (match["name"] or "", match["address"]) if match else ("", word)
            words.append(parts[0] + address(parts[1], key == "UV_FIND_LINKS"))
        return separator.join(words)

    return replace(
        dependencies,
        options=tuple(
            replace(option, value=address(option.value, option.name == "--find-links"))
            if option.name in _OPTIONS
            else option
            for option in dependencies.options
        ),
        indexes=tuple(map(index, dependencies.indexes)),
        settings=replace(
            dependencies.settings,
            passed=settings(dependencies.settings.passed),
            variables={
                key: variable(key, value) for key, value in dependencies.settings.variables.items()
            },
        ),
    )


def _path_of(address: str, folder: str) -> Path | None:
    """Return the path that *address* names, relative to *folder*; None: it is an address elsewhere."""
    if address.startswith("file:"):
        return Path(url2pathname(urlsplit(address).path))
    if "://" in address or not address:
        return None
    return Path(posixpath.normpath(posixpath.join(folder, address)))
