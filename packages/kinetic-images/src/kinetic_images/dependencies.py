"""Dependencies: which file declares them, what it says, and the digest of that for a target."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from kinetic_images.errors import DependencyError
from kinetic_images.pyproject import Pyproject, parse_pyproject
from kinetic_images.requirement_files import Option, RequirementSet, read_requirements
from kinetic_images.requirements import LocalRequirement, Place, Requirement, marker_holds
from kinetic_images.targets import target_environment
from kinetic_payload.distributions import DISTRIBUTIONS

REQUIREMENTS: Final = "requirements.txt"
PYPROJECT: Final = "pyproject.toml"
OWN_NAMES: Final = frozenset(str(canonicalize_name(name)) for name in DISTRIBUTIONS.values())
"""The normalised names of our distributions; on an index they may be a stranger's."""

_VCS: Final = (".git", ".hg", ".svn", ".jj")
_FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """What a project depends on, normalised; the same for every spelling of the same."""

    source: Path | None = None
    """The file that declares them; None where there is none."""
    requirements: tuple[Requirement, ...] = ()
    """Without our own packages, and without the project itself."""
    own: tuple[Requirement, ...] = ()
    """Lines that name our own packages: the client's copies go in instead."""
    constraints: tuple[Requirement, ...] = ()
    options: tuple[Option, ...] = ()
    local: tuple[LocalRequirement, ...] = ()
    """Paths of this machine, other than the project itself."""
    requires_python: str | None = None
    notes: tuple[str, ...] = ()
    """What was left out or not read, a sentence each."""

    def digest(self, platform: str, python: str) -> str:
        """Return the digest of what is asked for on this target.

        Comments, order, blank lines, line ends and spellings of a name change nothing, every
        requirement, constraint, hash, option and marker does. What an index answers and what lies
        in a local `--find-links` folder is not part of it; credentials never are.
        """
        chosen = self.for_target(platform, python)
        ingredients = {
            "format": _FORMAT,
            "platform": platform,
            "python": python,
            "requirements": sorted({one.canonical for one in chosen.requirements}),
            "own": sorted({f"{one.name}[{','.join(one.extras)}]" for one in chosen.own}),
            "constraints": sorted({one.canonical for one in chosen.constraints}),
            "local": sorted({f"{one.path}[{','.join(one.extras)}]" for one in chosen.local}),
            # The first index that has a package wins, so their order is an ingredient.
            "options": [one.canonical for one in chosen.options],
        }
        return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()

    def for_target(self, platform: str, python: str) -> Dependencies:
        """Return these dependencies without those whose marker is false on the target."""
        environment = target_environment(platform, python)
        return replace(
            self,
            requirements=tuple(one for one in self.requirements if one.applies(environment)),
            own=tuple(one for one in self.own if one.applies(environment)),
            constraints=tuple(one for one in self.constraints if one.applies(environment)),
            local=tuple(one for one in self.local if marker_holds(one.marker, environment)),
        )

    def refuse_local(self) -> None:
        """Refuse paths of this machine, which the function's machine cannot use.

        Raises:
            DependencyError: There is one; the message names its file and line.
        """
        for one in self.local:
            raise DependencyError(
                f"{self.shown(one.place)}: {one.text!r} is a path on this "
                "machine, which means nothing where the function runs.",
                hint="Move the code into the project (it travels with every call), give an address "
                f"(NAME @ git+https://…), or put built wheels into a folder named by --find-links "
                f"in {REQUIREMENTS}.",
            )

    def installer_lines(self) -> list[str]:
        """Return the lines of a requirements file for uv, credentials included."""
        return [*self._index_lines(), *(one.line for one in self.requirements)]

    def constraint_lines(self) -> list[str]:
        """Return the lines of a constraints file for uv."""
        return [one.line for one in self.constraints]

    def installer_arguments(self) -> list[str]:
        """Return the options that uv takes on its command line only."""
        arguments: list[str] = []
        for option in self.options:
            if option.name == "--pre":
                arguments.append("--prerelease=allow")
            elif option.name == "--require-hashes":
                arguments.append(option.name)
            elif option.name == "--trusted-host":
                arguments.append(f"--allow-insecure-host={option.value}")
        return arguments

    @property
    def requires_hashes(self) -> bool:
        """Whether every package must come with its hash."""
        return any(option.name == "--require-hashes" for option in self.options)

    def named_in(self, words: str) -> list[tuple[str, str]]:
        """Return (`file:line`, requirement) of those that an installer's *words* speak of."""
        found = [one for one in self.requirements if _speaks_of(words, one)]
        return [(self.shown(one.place), one.canonical) for one in found]

    def shown(self, place: Place) -> str:
        """Return *place* so that a terminal finds the file."""
        return f"{self.source.parent / place.file}:{place.line}" if self.source else str(place)

    def _index_lines(self) -> Iterator[str]:
        folder = self.source.parent if self.source else Path()
        for option in self.options:
            if option.name == "--find-links" and "://" not in option.value:
                yield f"--find-links {(folder / option.value).absolute()}"
            elif option.name not in ("--pre", "--require-hashes", "--trusted-host"):
                yield option.line


def find_dependencies(start: Path, *, home: Path | None = None) -> Dependencies:
    """Find and read what the project around *start* (its root or entry file) depends on.

    Raises:
        DependencyError: A line cannot be understood, or an included file cannot be read.
    """
    folder = start.absolute() if start.is_dir() else start.absolute().parent
    source = find_source(folder, home=home or Path.home())
    if source is None:
        note = f"No {REQUIREMENTS} or {PYPROJECT} declares dependencies for {folder}."
        return Dependencies(notes=(note,))
    return read_dependencies(source, project=folder)


def find_source(folder: Path, *, home: Path) -> Path | None:
    """Return the nearest file that declares dependencies, from *folder* upwards.

    In one folder `requirements.txt` comes before `pyproject.toml`. The search ends at the root of
    a version-controlled tree, and before the home folder and `/`, whose files are not a project's.
    """
    for place in (folder, *folder.parents):
        if place != folder and place in (home, Path(place.anchor)):
            return None
        if (place / REQUIREMENTS).is_file():
            return place / REQUIREMENTS
        if (place / PYPROJECT).is_file() and _pyproject(place / PYPROJECT).declares:
            return place / PYPROJECT
        if any((place / mark).exists() for mark in _VCS):
            return None
    return None


def read_dependencies(source: Path, *, project: Path | None = None) -> Dependencies:
    """Read the requirements file or `pyproject.toml` *source*; *project* is the project's root.

    Raises:
        DependencyError: A line cannot be understood, or an included file cannot be read.
    """
    folder = source.parent
    roots = {folder.resolve(), (project or folder).resolve()}
    requires_python = None
    if source.name == PYPROJECT:
        pyproject = _pyproject(source)
        said, requires_python = pyproject.said, pyproject.requires_python
    else:
        said = read_requirements(source.name, lambda name: (folder / name).read_bytes())
        beside = folder / PYPROJECT
        if beside.is_file() and not said.local and _pyproject(beside).said.requirements:
            note = (
                f"{source.name} was read, and the dependencies in {PYPROJECT} beside it were not."
            )
            said = replace(said, notes=(*said.notes, note))
    said = _without_project(said, folder, roots)
    own = [one for one in said.requirements if one.name in OWN_NAMES]
    return Dependencies(
        source=source,
        requirements=tuple(one for one in said.requirements if one.name not in OWN_NAMES),
        own=tuple(own),
        constraints=tuple(one for one in said.constraints if one.name not in OWN_NAMES),
        options=said.options,
        local=said.local,
        requires_python=requires_python,
        notes=(*said.notes, *_settings_notes(said.requirements), *_own_notes(own)),
    )


def _settings_notes(requirements: Iterable[Requirement]) -> Iterator[str]:
    for one in requirements:
        for setting in one.settings:
            name = setting.partition("=")[0]
            yield f"{one.place}: {name} was not read: it is an option of pip's own."


def _own_notes(own: Iterable[Requirement]) -> Iterator[str]:
    for one in own:
        yield (
            f"{one.place}: {one.canonical} is Kinetic's own and is not taken from an index: "
            "the copy that you are using goes in."
        )


def _without_project(said: RequirementSet, folder: Path, roots: set[Path]) -> RequirementSet:
    """Drop the project itself (`-e .`), which travels as the snapshot, for what it depends on."""
    local, notes = [], list(said.notes)
    requirements = list(said.requirements)
    for one in said.local:
        target = (folder / one.path).resolve()
        if target not in roots:
            local.append(one)
            continue
        pyproject = target / PYPROJECT
        if folder / one.place.file == pyproject or not pyproject.is_file():
            words = "was left out"
        else:
            inner = _pyproject(pyproject, one.extras).said
            names = f"../{PYPROJECT}" if target != folder.resolve() else PYPROJECT
            requirements += [
                replace(r, marker=_both(r.marker, one.marker)) for r in inner.requirements
            ]
            local += [each for each in inner.local if (target / each.path).resolve() not in roots]
            notes += inner.notes
            words = f"was replaced by the dependencies in its {names}"
        notes.append(
            f"{one.place}: {one.text!r} is the project itself, which travels with every call: "
            f"the line {words}."
        )
    return replace(
        said,
        requirements=tuple(dict.fromkeys(requirements)),
        local=tuple(local),
        notes=tuple(notes),
    )


def _both(first: str | None, second: str | None) -> str | None:
    return f"({first}) and ({second})" if first and second else first or second


def _pyproject(path: Path, extras: tuple[str, ...] = ()) -> Pyproject:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DependencyError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
    return parse_pyproject(data, path.name, extras=extras)


def _speaks_of(words: str, requirement: Requirement) -> bool:
    """Say whether an installer names the requirement, rather than using the word."""
    if requirement.url and requirement.canonical.partition(" @ ")[2].split(" ;")[0] in words:
        return True
    if not requirement.name:
        return False
    name = re.escape(requirement.name).replace(r"\-", "[-_.]+")
    lead = r"`|\b(?:of|require|requires|because|and|that|only|on)\s+"
    return bool(
        re.search(rf"(?:{lead}){name}(?![\w.-]*[\w])", words, re.IGNORECASE)
        or re.search(
            rf"(?<![\w.-]){name}(?:\[[^\]]*\])?\s?(?:[=<>!~]=|[<>@])", words, re.IGNORECASE
        )
    )
