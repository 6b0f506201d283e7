"""`pyproject.toml`: the dependencies a project declares there; what was not read, and why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from packaging.utils import canonicalize_name

from kinetic_images.errors import DependencyError
from kinetic_images.requirement_files import Option, RequirementSet, decoded
from kinetic_images.requirements import (
    LocalRequirement,
    Place,
    Requirement,
    parse_local,
    parse_requirement,
)

_EXPORT: Final = "write a requirements.txt beside it"


@dataclass(frozen=True)
class Pyproject:
    """What a `pyproject.toml` says about dependencies."""

    declares: bool
    """It speaks of a project, not only of its tools."""
    name: str | None
    requires_python: str | None
    said: RequirementSet


def parse_pyproject(data: bytes, file: str, *, extras: tuple[str, ...] = ()) -> Pyproject:
    """Read the `[project]` dependencies, with those of the optional sets *extras*.

    Raises:
        DependencyError: The file or one of its dependencies cannot be understood.
    """
    try:
        text = decoded(data)
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DependencyError(
            f"{file} cannot be read: {error}.", hint="Correct it; it is not TOML as it stands."
        ) from None
    lines = _Lines(text, file)
    project = _table(document.get("project"))
    tools = _table(document.get("tool"))
    name = project.get("name")
    requires = project.get("requires-python")
    return Pyproject(
        declares=bool(project) or "poetry" in tools,
        name=canonicalize_name(name) if isinstance(name, str) else None,
        requires_python=requires if isinstance(requires, str) else None,
        said=_said(document, project, tools, lines, extras),
    )


def _said(
    document: Mapping[str, Any],
    project: Mapping[str, Any],
    tools: Mapping[str, Any],
    lines: _Lines,
    extras: tuple[str, ...],
) -> RequirementSet:
    optional = _canonical(project.get("optional-dependencies"))
    uv = _table(tools.get("uv"))
    sources = _canonical(uv.get("sources"))
    own_name = canonicalize_name(str(project.get("name", "")))
    requirements: list[Requirement] = []
    local: list[LocalRequirement] = []
    wanted, taken = list(extras), set[str]()
    texts = _texts(project.get("dependencies", []), lines.key("dependencies"))
    while texts or wanted:
        if not texts:
            extra = wanted.pop()
            if extra in optional and extra not in taken:
                texts = _texts(optional[extra], lines.key(extra))
            taken.add(extra)
            continue
        text = texts.pop(0)
        place = lines.dependency(text)
        path = parse_local(text, place)
        if path is not None:
            local.append(path)
            continue
        requirement = parse_requirement(text, place)
        source = sources.get(requirement.name)
        if requirement.name == own_name:  # `project[all]` within the project itself
            wanted += requirement.extras
        elif source is None:
            requirements.append(requirement)
        else:
            _from_source(requirement, source, text, requirements, local)
    return RequirementSet(
        requirements=tuple(dict.fromkeys(requirements)),
        options=tuple(_indexes(uv.get("index"), lines)),
        local=tuple(dict.fromkeys(local)),
        notes=tuple(_notes(document, project, tools, lines, optional.keys() - taken)),
        files=(lines.file,),
    )


def _canonical(table: object) -> dict[str, Any]:
    return {str(canonicalize_name(key)): value for key, value in _table(table).items()}


def _notes(
    document: Mapping[str, Any],
    project: Mapping[str, Any],
    tools: Mapping[str, Any],
    lines: _Lines,
    optional: set[str],
) -> list[str]:
    """Say which tables speak of dependencies and were not read."""
    notes = []
    dynamic = project.get("dynamic")
    if isinstance(dynamic, list) and "dependencies" in dynamic:
        notes.append(
            f"{lines.key('dynamic')}: the dependencies are dynamic, which only the build backend "
            f"can tell, and were not read; {_EXPORT}."
        )
    poetry = _table(tools.get("poetry"))
    if {"dependencies", "group", "dev-dependencies"} & poetry.keys():
        advice = (
            "" if "dependencies" in project else f"; {_EXPORT}: poetry export -o requirements.txt"
        )
        notes.append(
            f"{lines.key('poetry')}: dependencies in the tables of Poetry were not read, "
            f"only those in [project]{advice}."
        )
    groups = _table(document.get("dependency-groups"))
    if groups:
        notes.append(
            f"{lines.key('dependency-groups')}: dependency groups are for development and were "
            f"not installed: {', '.join(sorted(groups))}."
        )
    if optional:
        notes.append(
            f"{lines.key('optional-dependencies')}: optional dependencies were not installed: "
            f"{', '.join(sorted(optional))}."
        )
    return notes


def _from_source(
    requirement: Requirement,
    source: object,
    text: str,
    requirements: list[Requirement],
    local: list[LocalRequirement],
) -> None:
    """Obey `[tool.uv.sources]`: by its name on an index this may be a stranger's package."""
    table = _table(source)
    place = requirement.place
    address = _address(table)
    if address is not None:
        requirements.append(replace(requirement, url=address, specifier=""))
    elif "path" in table or table.get("workspace"):
        local.append(
            LocalRequirement(
                path=str(table.get("path", f"(workspace) {requirement.name}")),
                extras=requirement.extras,
                marker=requirement.marker,
                text=text,
                place=place,
            )
        )
    else:
        raise DependencyError(
            f"{place}: where {requirement.name!r} comes from is said by [tool.uv.sources] in a form "
            "that is not read here.",
            hint="Write a requirements.txt beside it: "
            "uv export --no-emit-project --emit-index-url -o requirements.txt",
        )


def _address(source: Mapping[str, Any]) -> str | None:
    if set(source) == {"url"}:
        return str(source["url"])
    if "git" in source and not set(source) - {"git", "rev", "tag", "branch", "subdirectory"}:
        revision = next((source[key] for key in ("rev", "tag", "branch") if key in source), None)
        address = f"git+{source['git']}" + (f"@{revision}" if revision else "")
        folder = source.get("subdirectory")
        return address + (f"#subdirectory={folder}" if folder else "")
    return None


def _indexes(indexes: object, lines: _Lines) -> list[Option]:
    options = []
    for index in indexes if isinstance(indexes, list) else []:
        url = _table(index).get("url")
        # An explicit index serves only what [tool.uv.sources] assigns to it.
        if isinstance(url, str) and not index.get("explicit"):
            name = "--index-url" if index.get("default") else "--extra-index-url"
            options.append(Option(name, url, lines.dependency(url)))
    return options


def _texts(value: object, place: Place) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise DependencyError(
            f"{place}: dependencies must be a list of texts.",
            hint='Write: dependencies = ["numpy>=2"]',
        )
    return list(value)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


class _Lines:
    """Finds where something was written, which a TOML reader does not tell."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._lines = re.split(r"\r\n|\r|\n", text)

    def dependency(self, text: str) -> Place:
        """Return where the dependency *text* is written."""
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return self._first(lambda line: f'"{escaped}"' in line or f"'{text}'" in line)

    def key(self, name: str) -> Place:
        """Return where the key or the table *name* begins."""
        begins = re.compile(
            rf"\s*(?:\[+[^\]]*\b{re.escape(name)}|[\"']?{re.escape(name)}[\"']?\s*=)"
        )
        return self._first(lambda line: bool(begins.match(line)))

    def _first(self, fits: Callable[[str], bool]) -> Place:
        for number, line in enumerate(self._lines, 1):
            if not line.lstrip().startswith("#") and fits(line):
                return Place(self.file, number)
        return Place(self.file, 1)
