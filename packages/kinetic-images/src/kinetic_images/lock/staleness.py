"""Stale locks of a project: the first difference from what the project declares, with the lines of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.pyproject import group_texts
from kinetic_images.declared.requirements import Place
from kinetic_images.declared.toml_text import Lines, parsed_toml, table
from kinetic_images.declared.uv_files import PYPROJECT
from kinetic_images.errors import DependencyError

_DIRECT: Final = ("url", "git", "path", "directory", "editable", "virtual")
"""Keys of a requirement in `uv.lock` that say that it is not from an index."""
_FOLDERS: Final = ("editable", "virtual", "directory")
"""Keys of a package's source in `uv.lock` that name a folder: the project, or a member of its workspace."""
_SETTINGS: Final = {
    "overrides": "override-dependencies",
    "constraints": "constraint-dependencies",
    "build-constraints": "build-constraint-dependencies",
}
"""Keys of `[manifest]` in `uv.lock` → those of `[tool.uv]`."""
_ENVIRONMENTS: Final = tuple(
    {
        "sys_platform": system,
        "platform_system": {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[system],
        "os_name": "nt" if system == "win32" else "posix",
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.1",
    }
    for system, machine, python in product(
        ("linux", "darwin", "win32"),
        ("x86_64", "aarch64", "arm64"),
        (f"3.{minor}" for minor in range(8, 16)),
    )
)
"""Where two markers are compared: uv does not keep their spelling."""

Read = Callable[[Path], str | None]
"""Return the text of a file; None: it cannot be read."""


def uv_lock_difference(lock: Path, text: str, read: Read) -> str | None:
    """Return how the *text* of the `uv.lock` at *lock* differs from the projects that it was made for.

    The words begin with the place of a declaration, and name the line of the lock. None: there is no
    difference in what is compared: requirements, versions and Python of the projects, overrides and constraints.
    """
    try:
        return next(_differences(lock, text, read), None)
    except (AttributeError, KeyError, TypeError, DependencyError, BaseExceptionGroup, ValueError):
        return None  # It is of another format, or a file is damaged, which uv describes.


def entry_place(lock: Path, text: str, array: str, name: str, version: str = "") -> str | None:
    """Return `file:line` of the package *name* in the *text* of the lock at *lock*; None: it is not there.

    *array* is the name of the array of packages. Without *version*, it is the first entry of the name.
    """
    lines, entries = Lines(text, str(lock)), parsed_toml(text, str(lock)).get(array, [])
    for number, entry in enumerate(entries):
        if canonicalize_name(str(entry.get("name"))) == name and version in (
            "",
            entry.get("version"),
        ):
            place = lines.entry(array, number)
            return str(place) if place is not None else str(lock)
    return None


@dataclass(frozen=True)
class _Locked:
    """A `uv.lock`, with the lines of its packages."""

    document: Mapping[str, Any]
    lines: Lines
    packages: Sequence[Mapping[str, Any]]

    def place(self, number: int) -> Place:
        """Return the place of the package with the index *number*."""
        return self.lines.entry("package", number) or Place(self.lines.file, 1)

    def versions(self, name: str) -> Iterator[tuple[Place, str]]:
        """Iterate over the versions of the package *name*, each with its place."""
        for number, package in enumerate(self.packages):
            if package["name"] == name and "version" in package:
                yield self.place(number), package["version"]


@dataclass(frozen=True)
class _Declared:
    """A requirement that a project declares, where it holds, and the rows that the lock has for that part."""

    text: str
    place: Place
    rows: Sequence[Mapping[str, Any]]
    extra: str = ""


def _differences(path: Path, text: str, read: Read) -> Iterator[str]:
    document = parsed_toml(text, str(path))
    lock = _Locked(document, Lines(text, str(path)), document["package"])
    for number, package in enumerate(lock.packages):
        folder = next(
            (package["source"][key] for key in _FOLDERS if key in package["source"]), None
        )
        if folder is None:
            continue
        project = path.parent / folder / PYPROJECT
        content = read(project)
        if content is not None:
            yield from _of_project(content, str(project), package, number, lock)
    content = read(path.parent / PYPROJECT)
    if content is not None:
        yield from _of_settings(content, str(path.parent / PYPROJECT), lock)


def _of_project(
    content: str, file: str, package: Mapping[str, Any], number: int, lock: _Locked
) -> Iterator[str]:
    document, lines = parsed_toml(content, file), Lines(content, file)
    project = table(document.get("project"))
    sources = table(table(table(document.get("tool")).get("uv")).get("sources"))
    sourced = {str(canonicalize_name(name)) for name in sources}
    listed = tuple(_declared(document, lines, table(package.get("metadata"))))
    for declared in listed:
        yield from _of_requirement(declared, sourced, number, lock)
    yield from _of_removed(listed, sourced, package, number, lock, lines)
    place = lock.lines.after(lock.place(number), f'version = "{package.get("version")}"')
    if "version" in project and project["version"] != package.get("version"):
        yield (
            f"{lines.key('version')}: the version of the project is {project['version']}, but {place} has "
            f"{package.get('version')}"
        )


def _declared(
    document: Mapping[str, Any], lines: Lines, metadata: Mapping[str, Any]
) -> Iterator[_Declared]:
    project = table(document.get("project"))
    rows = metadata.get("requires-dist", [])
    for text in project.get("dependencies", []):
        yield _Declared(text, lines.text(text), rows)
    for extra, texts in table(project.get("optional-dependencies")).items():
        for text in texts:
            yield _Declared(text, lines.text(text), rows, str(canonicalize_name(extra)))
    groups = table(document.get("dependency-groups"))
    for group in groups:
        required = table(metadata.get("requires-dev"))
        own = required.get(group, required.get(canonicalize_name(group), []))
        for text in group_texts(groups, group):
            yield _Declared(text, lines.text(text), own)


def _of_requirement(
    declared: _Declared, sourced: set[str], number: int, lock: _Locked
) -> Iterator[str]:
    parsed = _parsed(declared.text)
    if parsed is None:
        return
    name = str(canonicalize_name(parsed.name))
    said = f"{declared.place}: {without_credentials(declared.text)} is required, but"
    rows = [row for row in declared.rows if row["name"] == name]
    if not rows:
        yield f"{said} {lock.place(number)} does not list it"
        return
    if any(_is_same(parsed, row, declared.extra, is_sourced=name in sourced) for row in rows):
        return
    for place, version in lock.versions(name):
        if not parsed.specifier.contains(version, prereleases=True):
            yield f"{said} {place} has version {version}"
            return
    yield f"{said} {_row_place(rows[0], number, lock)} was made for {_row_text(rows[0])}"


def _of_removed(
    listed: Sequence[_Declared],
    sourced: set[str],
    package: Mapping[str, Any],
    number: int,
    lock: _Locked,
    lines: Lines,
) -> Iterator[str]:
    metadata = table(package.get("metadata"))
    parts = {"dependencies": metadata.get("requires-dist", [])}
    parts |= dict(table(metadata.get("requires-dev")))
    for key, rows in parts.items():
        declared = [
            (parsed, each.extra)
            for each in listed
            if each.rows is rows and (parsed := _parsed(each.text))
        ]
        for row in rows:
            if not any(
                _is_same(parsed, row, extra, is_sourced=row["name"] in sourced)
                for parsed, extra in declared
            ):
                yield (
                    f"{lines.key(key)}: {row['name']} is not required any more, but "
                    f"{_row_place(row, number, lock)} was made for {_row_text(row)}"
                )


def _of_settings(content: str, file: str, lock: _Locked) -> Iterator[str]:
    document, lines = parsed_toml(content, file), Lines(content, file)
    python = table(document.get("project")).get("requires-python")
    made_for = lock.document.get("requires-python")
    manifest = table(lock.document.get("manifest"))
    is_alone = "members" not in manifest  # Otherwise the lock has what all members have in common.
    if is_alone and python and made_for and not _same_specifiers(python, made_for):
        yield (
            f"{lines.key('requires-python')}: Python {python} is required, but "
            f"{lock.lines.key('requires-python')} was made for Python {made_for}"
        )
    uv = table(table(document.get("tool")).get("uv"))
    for key, setting in _SETTINGS.items():
        asked = [parsed for text in uv.get(setting, []) if (parsed := _parsed(text))]
        rows = manifest.get(key, [])
        if len(asked) != len(rows) or not all(
            any(_is_same(parsed, row, "", is_sourced=False) for row in rows) for parsed in asked
        ):
            begins = lines.key_of("tool.uv", setting)
            yield f"{begins}: {setting} was changed since {lock.lines.key('manifest')} was written"


def _is_same(parsed: Parsed, row: Mapping[str, Any], extra: str, *, is_sourced: bool) -> bool:
    """Return whether a *row* of `uv.lock` is what the requirement *parsed* became."""
    if canonicalize_name(parsed.name) != row["name"]:
        return False
    if {canonicalize_name(each) for each in parsed.extras} != {*row.get("extras", ())}:
        return False
    if not _same_markers(str(parsed.marker or ""), row.get("marker", ""), extra):
        return False
    if parsed.url is not None:
        address = parsed.url.partition("#")[0]
        kept = str(row.get("url") or row.get("git") or "").partition("#")[0]
        if "git" in row:
            address, kept = address.removeprefix("git+"), kept.partition("?")[0]
            return address.startswith(kept)
        return without_credentials(address) == without_credentials(kept)
    if is_sourced:
        return True
    if any(key in row for key in _DIRECT):
        return False
    return _same_specifiers(str(parsed.specifier), row.get("specifier", ""))


def _same_specifiers(first: str, second: str) -> bool:
    try:
        return SpecifierSet(first) == SpecifierSet(second)
    except InvalidSpecifier:
        return False


def _same_markers(first: str, second: str, extra: str) -> bool:
    try:
        one, other = (Marker(text) if text else None for text in (first, second))
    except InvalidMarker:
        return False

    def holds(marker: Marker | None, environment: Mapping[str, str]) -> bool:
        return marker is None or marker.evaluate({**environment})

    return all(
        (holds(one, where) and chosen == extra) == holds(other, where)
        for chosen in {"", extra}
        for where in ({**environment, "extra": chosen} for environment in _ENVIRONMENTS)
    )


def _row_place(row: Mapping[str, Any], number: int, lock: _Locked) -> Place:
    start = lock.lines.after(lock.place(number), "[package.metadata]")
    wanted = [f'name = "{row["name"]}"']
    wanted += [f'specifier = "{row["specifier"]}"'] if "specifier" in row else []
    return lock.lines.after(start, *wanted)


def _row_text(row: Mapping[str, Any]) -> str:
    extras = f"[{','.join(row['extras'])}]" if row.get("extras") else ""
    address = next((f" @ {row[key]}" for key in _DIRECT if key in row), "")
    marker = f" ; {row['marker']}" if row.get("marker") else ""
    return without_credentials(f"{row['name']}{extras}{row.get('specifier', '')}{address}{marker}")


def _parsed(text: object) -> Parsed | None:
    try:
        return Parsed(str(text))
    except InvalidRequirement:
        return None
