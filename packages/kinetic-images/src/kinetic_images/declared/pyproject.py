"""`pyproject.toml`: the dependencies that a project declares there, and notes on ignored tables."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, get_args

from packaging.dependency_groups import resolve_dependency_groups
from packaging.utils import canonicalize_name

from kinetic_images.declared.requirement_files import RequirementSet
from kinetic_images.declared.requirements import (
    KEEP_MARK,
    LocalRequirement,
    Place,
    Requirement,
    both,
    expanded,
    parse_local,
    parse_requirement,
)
from kinetic_images.declared.toml_text import Lines, parsed_toml, table, toml_value
from kinetic_images.declared.uv_settings import table_indexes
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category

MEMBERS: Final = "(workspace)"
"""In place of a path: the members of the project's workspace; before a name: its member of that name."""
_EXPORT: Final = "write a requirements.txt beside it"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where a project takes single packages from: `[tool.uv.sources]` and the indexes named there."""

    of: Mapping[str, Any] = field(default_factory=dict)
    """Canonical name of a package → its entry in `[tool.uv.sources]`."""
    indexes: tuple[Mapping[str, Any], ...] = ()
    """Tables of `[[tool.uv.index]]` that have a name."""


@dataclass(frozen=True)
class Pyproject:
    """The parts of a `pyproject.toml` that concern dependencies."""

    declares: bool
    """Whether it describes a project, not only its tools."""
    requires_python: str | None
    declared: RequirementSet
    lists_dependencies: bool
    """Whether `[project]` lists all dependencies, so that no build backend must determine any."""
    indexes: tuple[Mapping[str, Any], ...] = ()
    """The named indexes that the requirements' sources use."""
    chosen: Chosen = field(default_factory=lambda: Chosen())
    """What `[tool.kinetic]` requests besides the dependencies."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of uv in a script."""


@dataclass(frozen=True)
class Chosen:
    """Optional dependencies that a project requests for its jobs on one kind of accelerator."""

    extras: tuple[str, ...] = ()
    """Names in `[project.optional-dependencies]`."""
    groups: tuple[str, ...] = ()
    """Names in `[dependency-groups]`."""


def parse_pyproject(
    text: str,
    file: str,
    *,
    extras: tuple[str, ...] = (),
    folder: str = "",
    workspace: Sources | None = None,
    environ: Mapping[str, str] | None = None,
    category: Category = "cpu",
    script: bool = False,
    is_part: bool = False,
) -> Pyproject:
    """Read the dependencies in `[project]`, including the optional dependencies *extras*.

    Those that it requests for jobs on a *category* are included. The metadata of a *script* has the keys of
    `[project]` at its top. In a part of another project (*is_part*), nothing else is read: `[tool.kinetic]` is
    for its own jobs. The root of a workspace that is no project itself depends on all members, as in uv.

    `${NAME}` is replaced by the variable of *environ*. Relative addresses of indexes are relative to
    *folder*. For a member of a workspace, *workspace* contains the sources of the workspace's root; the
    member's own sources take precedence.

    Raises:
        DependencyError: The file or one of its dependencies cannot be understood.
    """
    document = parsed_toml(text, file)
    lines = Lines(text, file)
    project = document if script else table(document.get("project"))
    tools = table(document.get("tool"))
    uv = table(tools.get("uv"))
    requires = project.get("requires-python")
    dynamic = project.get("dynamic")
    built = frozenset(map(str, dynamic)) if isinstance(dynamic, list) else frozenset()
    sources = _sources(uv, folder)
    if workspace is not None:
        sources = Sources(
            of={**workspace.of, **sources.of}, indexes=(*sources.indexes, *workspace.indexes)
        )
    chosen, named = _chosen({} if is_part else tools, project, document, lines, category)
    wanted = (*extras, *(extra for extra in chosen.extras if extra not in extras))
    texts = _group_texts(document, chosen.groups, lines)
    declared, unread = _declared(project, lines, wanted, texts, sources, environ or {})
    if not project and "workspace" in uv:
        place = lines.key("members")
        members = LocalRequirement(path=MEMBERS, text="members", editable=True, place=place)
        declared = replace(declared, local=(*declared.local, members))
    if not is_part:
        notes = _notes(document, project, tools, lines, unread, named, built)
        declared = replace(declared, notes=(*notes, *declared.notes))
    return Pyproject(
        declares=bool(project) or "poetry" in tools or "workspace" in uv,
        requires_python=requires if isinstance(requires, str) else None,
        declared=declared,
        lists_dependencies=bool(project)
        and not (
            built & ({"dependencies", "optional-dependencies"} if extras else {"dependencies"})
        )
        and ("dependencies" in project or "poetry" not in tools),
        indexes=sources.indexes if any(line.source for line in declared.requirements) else (),
        chosen=chosen,
        settings={key: uv[key] for key in uv if key != "sources"} if script else {},
    )


_CHOSEN: Final = {"extras": "project.optional-dependencies", "groups": "dependency-groups"}
"""Keys of `[tool.kinetic]` → the table that has the names."""
_TABLE: Final = "tool.kinetic"


def _chosen(
    tools: Mapping[str, Any],
    project: Mapping[str, Any],
    document: Mapping[str, Any],
    lines: Lines,
    category: Category,
) -> tuple[Chosen, frozenset[str]]:
    """Read `[tool.kinetic]` and its tables for one accelerator, whose lists replace those above them.

    Return what is chosen for *category*, and the names that are chosen for any accelerator.

    Raises:
        DependencyError: A key or a name in it is unknown.
    """
    own = table(tools.get("kinetic"))
    known = {
        "extras": _canonical(project.get("optional-dependencies")),
        "groups": _canonical(document.get("dependency-groups")),
    }
    tables = {kind: own[kind] for kind in get_args(Category) if isinstance(own.get(kind), dict)}
    common = {key: value for key, value in own.items() if key not in tables}
    found: dict[str, tuple[str, ...]] = {}
    named = set[str]()
    for kind, lists in (("", common), *tables.items()):
        header = f"{_TABLE}.{kind}".rstrip(".")
        for key, texts in lists.items():
            place = lines.key_of(header, key)
            if key not in _CHOSEN:
                raise DependencyError(
                    f"{place}: [{header}] has no key {key!r}.",
                    hint=f"The keys are: {', '.join(_CHOSEN)}. The tables are: "
                    f"{', '.join(f'[{_TABLE}.{name}]' for name in get_args(Category))}.",
                )
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise DependencyError(
                    f"{place}: {key} of [{header}] must be a list of names.",
                    hint=f'Write: {key} = ["NAME"]',
                )
            names = tuple(dict.fromkeys(str(canonicalize_name(text)) for text in texts))
            for name in names:
                if name not in known[key]:
                    listed = ", ".join(sorted(known[key])) or "no names"
                    raise DependencyError(
                        f"{place}: {name!r} in {key} of [{header}] is not in [{_CHOSEN[key]}].",
                        hint=f"That table has: {listed}.",
                    )
            named.update(names)
            if kind in ("", category):
                found[key] = names
    return Chosen(**found), frozenset(named)


@dataclass(frozen=True)
class Workspace:
    """A workspace of uv: its members, and the sources that they share."""

    members: tuple[str, ...]
    excluded: tuple[str, ...]
    sources: Sources

    def has(self, folder: str) -> bool:
        """Return whether *folder*, relative to the workspace's root, is a member."""
        parts = folder.split("/")
        return any(_matches(parts, pattern.split("/")) for pattern in self.members) and not any(
            _matches(parts, pattern.split("/")) for pattern in self.excluded
        )


def parse_workspace(text: str, file: str, folder: str) -> Workspace | None:
    """Read `[tool.uv.workspace]` of a `pyproject.toml` in *folder*; return None if it has no such table.

    Raises:
        DependencyError: The file cannot be understood.
    """
    uv = table(table(parsed_toml(text, file).get("tool")).get("uv"))
    if "workspace" not in uv:
        return None
    workspace = table(uv["workspace"])
    members, excluded = (
        tuple(text.strip("/") for text in workspace.get(key, ()) if isinstance(text, str))
        for key in ("members", "exclude")
    )
    return Workspace(members, excluded, _sources(uv, folder))


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] in (".", ""):
        return _matches(parts, pattern[1:])
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _sources(uv: Mapping[str, Any], folder: str) -> Sources:
    indexes = table_indexes(uv.get("index"), folder)
    return Sources(
        of={
            name: _beside(source, folder) for name, source in _canonical(uv.get("sources")).items()
        },
        indexes=tuple(index for index in indexes if isinstance(index.get("name"), str)),
    )


def _beside(source: Any, folder: str) -> Any:
    """Return the *source* of a package with a path in it made absolute."""
    if isinstance(source, list):
        return [_beside(entry, folder) for entry in source]
    if "path" in table(source):
        return {**source, "path": posixpath.join(folder, str(source["path"]))}
    return source


def _declared(
    project: Mapping[str, Any],
    lines: Lines,
    extras: tuple[str, ...],
    more: list[str],
    sources: Sources,
    environ: Mapping[str, str],
) -> tuple[RequirementSet, set[str]]:
    """Return the dependencies of *project* with its *extras* and *more*, and the names of its other extras."""
    optional = _canonical(project.get("optional-dependencies"))
    own_name = canonicalize_name(str(project["name"])) if "name" in project else None
    requirements: list[Requirement] = []
    local: list[LocalRequirement] = []
    taken = set[str]()
    unknown = dict[str, Place]()

    def take(texts: list[str], marker: str | None, within: frozenset[str]) -> None:
        for written in texts:
            place = lines.text(written)
            text = expanded(written, environ)
            path = parse_local(text, place)
            if path is not None:
                local.append(replace(path, marker=both(path.marker, marker)))
                continue
            keep = lines.is_marked(written, KEEP_MARK)
            parsed = parse_requirement(text, place, keep=keep)
            requirement = replace(parsed, marker=both(parsed.marker, marker))
            source = sources.of.get(requirement.name)
            if requirement.name == own_name:  # `project[all]` within the project itself
                for extra in requirement.extras:
                    take_extra(extra, requirement.marker, within, place)
            elif source is None:
                requirements.append(requirement)
            elif isinstance(found := _from_source(requirement, source, text), LocalRequirement):
                local.append(found)
            else:
                requirements.append(found)

    def take_extra(
        extra: str, marker: str | None, within: frozenset[str], place: Place | None
    ) -> None:
        # An extra that includes itself adds nothing: its marker would only be narrower.
        if extra in optional and extra not in within:
            taken.add(extra)
            take(_texts(optional[extra], lines.key(extra)), marker, within | {extra})
        elif extra not in optional:
            unknown.setdefault(extra, place or lines.key("optional-dependencies"))

    take(_texts(project.get("dependencies", []), lines.key("dependencies")), None, frozenset())
    for extra in extras:
        take_extra(extra, None, frozenset(), None)
    take(more, None, frozenset())
    declared = RequirementSet(
        requirements=tuple(dict.fromkeys(requirements)),
        local=tuple(dict.fromkeys(local)),
        notes=tuple(
            f"{place}: there is no extra {name!r} in [project.optional-dependencies]."
            for name, place in unknown.items()
        ),
    )
    return declared, optional.keys() - taken


def _group_texts(document: Mapping[str, Any], groups: tuple[str, ...], lines: Lines) -> list[str]:
    """Return the requirements in *groups* of `[dependency-groups]`, included groups too."""
    listed = table(document.get("dependency-groups"))
    try:
        # It checks; what it returns has lost its spelling.
        resolve_dependency_groups(listed, *groups)
    except (BaseExceptionGroup, LookupError, TypeError, ValueError) as error:
        reasons = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
        raise DependencyError(
            f"{lines.key('dependency-groups')}: [dependency-groups] cannot be read: "
            f"{'; '.join(map(str, reasons))}.",
            hint="Correct the group: a list of requirements and {include-group = NAME}.",
        ) from error
    named = _canonical(listed)

    def texts_of(group: str) -> Iterator[str]:
        for entry in named[canonicalize_name(group)]:
            if isinstance(entry, str):
                yield entry
            else:
                yield from texts_of(entry["include-group"])

    return [text for group in groups for text in texts_of(group)]


def _canonical(value: object) -> dict[str, Any]:
    return {str(canonicalize_name(key)): entry for key, entry in table(value).items()}


def _notes(
    document: Mapping[str, Any],
    project: Mapping[str, Any],
    tools: Mapping[str, Any],
    lines: Lines,
    optional: set[str],
    named: frozenset[str],
    built: frozenset[str],
) -> list[str]:
    """Return notes on tables with dependencies that were ignored."""
    notes = []
    if "dependencies" in built:
        notes.append(
            f"{lines.key('dynamic')}: the dependencies are dynamic, so only the build backend can "
            f"determine them, and they were ignored; {_EXPORT}."
        )
    poetry = table(tools.get("poetry"))
    if {"dependencies", "group", "dev-dependencies"} & poetry.keys():
        advice = "" if "dependencies" in project else f"; {_EXPORT}"
        notes.append(
            f"{lines.key('poetry')}: dependencies in the tables of Poetry were ignored; "
            f"only those in [project] were read{advice}."
        )
    groups = _canonical(document.get("dependency-groups")).keys() - named
    if groups:
        notes.append(
            f"{lines.key('dependency-groups')}: dependency groups are for development and were "
            f"not installed: {', '.join(sorted(groups))}. To install some, name them in "
            "[tool.kinetic]: groups."
        )
    if optional := optional - named:
        notes.append(
            f"{lines.key('optional-dependencies')}: optional dependencies were not installed: "
            f"{', '.join(sorted(optional))}. To install some, name them in [tool.kinetic]: extras."
        )
    return notes


def _from_source(
    requirement: Requirement, source: object, text: str
) -> Requirement | LocalRequirement:
    """Apply `[tool.uv.sources]`: on another index, the name may belong to a different package."""
    place, table_of = requirement.place, table(source)
    keys, address = table_of.keys() - {"subdirectory"}, None
    if keys == {"url"}:
        address = str(table_of["url"])
    elif "git" in keys and not keys - {"git", "rev", "tag", "branch"}:
        revision = next((table_of[key] for key in ("rev", "tag", "branch") if key in keys), None)
        address = f"git+{table_of['git']}" + (f"@{revision}" if revision else "")
    if address and table_of.get("subdirectory"):
        address += f"#subdirectory={table_of['subdirectory']}"
    entries = source if isinstance(source, list) else [source]
    paths = [entry for entry in map(table, entries) if "path" in entry or entry.get("workspace")]
    path = parse_local(f"{requirement.name} @ {address}", place) if address else None
    if paths:
        path = LocalRequirement(
            path=str(paths[0].get("path", MEMBERS + requirement.name)),
            extras=requirement.extras,
            text=text,
            editable=bool(paths[0].get("editable", "path" not in paths[0])),
            place=place,
        )
    if path is not None:
        return replace(path, marker=requirement.marker, text=text)
    if address is not None:
        return replace(requirement, url=address, specifier="")
    return replace(requirement, source=toml_value(source))


def _texts(value: object, place: Place) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise DependencyError(
            f"{place}: dependencies must be a list of strings.",
            hint='Write: dependencies = ["numpy>=2"]',
        )
    return list(value)
