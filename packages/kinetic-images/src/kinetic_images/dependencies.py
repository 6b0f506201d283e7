"""Dependencies of a project: found, normalised, and digested for a target."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from kinetic_images.declared.projects import (
    read_pyproject,
    script_metadata,
    settings_folder,
    without_project,
)
from kinetic_images.declared.pyproject import Chosen, Pyproject
from kinetic_images.declared.requirement_files import Option, read_requirements
from kinetic_images.declared.requirements import LocalRequirement, Place, Requirement, marker_holds
from kinetic_images.declared.uv_files import PYPROJECT, find_settings
from kinetic_images.declared.uv_settings import (
    Index,
    Settings,
    index_of,
    named_index,
    public,
)
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category, target_environment
from kinetic_images.uv import inherited
from kinetic_payload.distributions import DISTRIBUTIONS

REQUIREMENTS: Final = "requirements.txt"
OWN_NAMES: Final = frozenset(str(canonicalize_name(name)) for name in DISTRIBUTIONS.values())
"""The normalised names of Kinetic's own distributions; on an index they may belong to other projects."""

_LIST: Final = f"uv pip list --format freeze --exclude-editable > {REQUIREMENTS}"
_UNREAD: Final = {
    "poetry.lock": f"poetry export -o {REQUIREMENTS} (a command of poetry-plugin-export)",
    "pdm.lock": f"pdm export --prod -o {REQUIREMENTS}",
    "Pipfile.lock": f"pipenv requirements > {REQUIREMENTS}",
    "pixi.lock": f"pixi run {_LIST}",
    "environment.yml": f"{_LIST} (with the environment activated)",
    "setup.py": f"uv pip compile setup.py -o {REQUIREMENTS}",
    "setup.cfg": f"uv pip compile setup.cfg -o {REQUIREMENTS}",
}
"""Files that other tools read → the command that makes their packages usable."""
_VCS: Final = (".git", ".hg", ".svn", ".jj")
_FORMAT: Final = 3


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The dependencies of a project, normalised: two of them are equal if they mean the same."""

    source: Path | None = None
    """The file that declares them; None if there is none."""
    is_script: bool = False
    """Whether this file is a script with metadata."""
    folder: Path | None = None
    """The folder for which uv finds its settings; None: only those of the user and the machine apply."""
    requirements: tuple[Requirement, ...] = ()
    """The requirements, except Kinetic's own packages and the project itself."""
    own: tuple[Requirement, ...] = ()
    """Requirements that name Kinetic's own packages: the client's copies are installed instead."""
    constraints: tuple[Requirement, ...] = ()
    overrides: tuple[str, ...] = ()
    """Overrides besides those in the settings of uv."""
    options: tuple[Option, ...] = ()
    settings: Settings = field(default_factory=Settings)
    """The settings of uv that apply."""
    source_indexes: tuple[Mapping[str, Any], ...] = ()
    """Tables of the named indexes from which some requirements must come."""
    local: tuple[LocalRequirement, ...] = ()
    """Paths on this machine, other than the project itself."""
    requires_python: str | None = None
    """The versions of Python that all projects among them support."""
    chosen: Chosen = field(default_factory=Chosen)
    """The optional dependencies among the requirements."""
    notes: tuple[str, ...] = ()
    """Sentences about what was left out or ignored."""

    def digest(self, platform: str, python: str) -> str:
        """Return the digest of the dependencies for a target.

        Comments, order, blank lines, line endings and the spelling of a name do not change it.
        Requirements, constraints, hashes, options, settings and markers do. The contents of indexes
        and of local `--find-links` folders are not part of it, and credentials never are.
        """
        chosen = self.for_target(platform, python)
        ingredients = {
            "format": _FORMAT,
            "platform": platform,
            "python": python,
            "requirements": sorted({line.canonical for line in chosen.requirements}),
            "own": sorted({f"{line.name}[{','.join(line.extras)}]" for line in chosen.own}),
            "constraints": sorted({line.canonical for line in chosen.constraints}),
            "overrides": sorted(chosen.overrides),
            "settings": chosen.settings.digested,
            # Not sorted: a package is taken from the first index that has it.
            "indexes": [[public(index.address), public(index.options)] for index in chosen.indexes],
            "local": sorted({f"{line.path}[{','.join(line.extras)}]" for line in chosen.local}),
            "options": [
                option.canonical for option in chosen.options if option.name not in ADDRESSED
            ],
        }
        return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()

    def for_target(self, platform: str, python: str) -> Dependencies:
        """Return these dependencies without those whose marker is false on the target.

        A requirement that is overridden stays, because an override also replaces its marker.
        """
        environment = target_environment(platform, python)
        overridden = self.settings.overridden
        return replace(
            self,
            requirements=tuple(
                requirement
                for requirement in self.requirements
                if requirement.name in overridden or requirement.applies(environment)
            ),
            own=tuple(line for line in self.own if line.applies(environment)),
            constraints=tuple(line for line in self.constraints if line.applies(environment)),
            local=tuple(line for line in self.local if marker_holds(line.marker, environment)),
        )

    def refuse_unusable(self, python: str) -> None:
        """Refuse what cannot be used where the function runs, by *python*: its version, paths on this machine.

        Raises:
            DependencyError: The project requires another Python, or names such a path; the message has its place.
        """
        try:
            wanted = SpecifierSet(self.requires_python or "")
        except InvalidSpecifier as error:
            raise DependencyError(
                f"requires-python of {self.source} cannot be read: {error}.",
                hint='Write for instance: requires-python = ">=3.11"',
            ) from None
        marker = " and ".join(
            f"python_full_version {each.operator} '{each.version}'" for each in wanted
        )
        if not marker_holds(marker or None, target_environment("", python)):
            raise DependencyError(
                f"{self.source} requires Python {self.requires_python}, and the job would run on Python {python}.",
                hint="Submit with a Python that fits: the job gets the same one. Or change requires-python.",
            )
        for path in self.local:
            raise DependencyError(
                f"{self.shown(path.place)}: {path.text!r} is a path on this machine ({path.path}), which does not exist "
                "where the function runs.",
                hint="Make it editable (-e, or editable = true in [tool.uv.sources]): then its code travels with the "
                "project, in place of an installed copy."
                if path.is_copy
                else "Ship a folder that contains it, too: KINETIC_PACKAGE_ROOT=FOLDER. Or give an address (NAME @ "
                "git+https://…), or put built wheels into a folder named by --find-links in "
                f"{REQUIREMENTS}.",
            )

    @property
    def indexes(self) -> tuple[Index, ...]:
        """All places where packages come from."""
        folder = str(self.source.parent) if self.source else "/"
        named = (
            replace(index, named_by=f"{self.shown(option.place)}: {option.name}")
            for option in self.options
            if option.name in ADDRESSED
            for index in named_index(option.name, option.value, folder)
        )
        return (*named, *map(index_of, self.source_indexes), *self.settings.indexes)

    @property
    def requires_hashes(self) -> bool:
        """Whether every package must come with its hash."""
        return any(option.name == "--require-hashes" for option in self.options)

    def named_in(self, words: str) -> list[tuple[str, str]]:
        """Return (`file:line`, requirement) of each requirement that the installer's message *words* names."""

        def is_named(line: Requirement) -> bool:
            if line.url and line.canonical.partition(" @ ")[2].split(" ;")[0] in words:
                return True
            # A name may also be an ordinary word.
            name = re.escape(line.name).replace(r"\-", "[-_.]+")
            lead = r"`|\b(?:of|require|requires|because|and|that|only|on)\s+"
            patterns = (
                rf"(?:{lead}){name}(?![\w.-]*[\w])",
                rf"(?<![\w.-]){name}(?:\[[^\]]*\])?\s?(?:[=<>!~]=|[<>@])",
            )
            return bool(name) and any(re.search(each, words, re.IGNORECASE) for each in patterns)

        found = filter(is_named, self.requirements)
        return [(self.shown(line.place), line.canonical) for line in found]

    def shown(self, place: Place) -> str:
        """Return *place* with the full path of its file, if that is known."""
        return f"{self.source.parent / place.file}:{place.line}" if self.source else str(place)


NO_PROJECT: Final = "Code without a project declares no dependencies."
"""The note on the dependencies of code without a project."""
ADDRESSED: Final = frozenset({"--index-url", "--extra-index-url", "--find-links"})
"""Options that name places where packages come from."""


def find_dependencies(
    start: Path | None,
    *,
    project: Path | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    category: Category = "cpu",
) -> Dependencies:
    """Find and read what the code at *start*, a folder or file of a project, depends on.

    *project* is the folder that is shipped (default: that of *start*). If *start* is a script with metadata of
    its own (PEP 723), that is read in place of the project. If it is None, the code has no project: only uv's
    settings of the user and the machine are read. *environ* holds the variables that files may name and that
    configure uv; None: the process's environment. *category* is the kind of accelerator, for which a project
    may name dependencies of its own.

    Raises:
        DependencyError: A line or a setting cannot be used, or a file cannot be read.
    """
    if start is None:
        found = Dependencies(notes=(NO_PROJECT,))
        return _with_settings(found, find_settings(None, inherited(environ)))
    folder = start.absolute() if start.is_dir() else start.absolute().parent
    if script_metadata(start) is not None:
        return read_dependencies(
            start, project=project or folder, environ=environ, category=category
        )
    with suppress(RuntimeError):  # In a container, a user may have no home folder.
        home = home or Path.home()
    home = home or Path("/")
    source = find_source(folder, home=home)
    if source is None:
        note = f"No {REQUIREMENTS} or {PYPROJECT} declares dependencies for {folder}."
        found = Dependencies(folder=folder, notes=(note,))
        found = _with_settings(found, find_settings(settings_folder(folder), inherited(environ)))
    else:
        found = read_dependencies(
            source, project=project or folder, environ=environ, category=category
        )
    return replace(found, notes=(*found.notes, *_passed_over(folder, source, home)))


def find_source(folder: Path, *, home: Path) -> Path | None:
    """Return the nearest file that declares dependencies, from *folder* upwards.

    In one folder, `requirements.txt` takes precedence over `pyproject.toml`. The search ends at the
    root of a version-controlled tree, and before the home folder and `/`, whose files do not belong to
    a project.
    """
    for place in _searched(folder, home):
        if (place / REQUIREMENTS).is_file():
            return place / REQUIREMENTS
        if (place / PYPROJECT).is_file() and read_pyproject(place / PYPROJECT).declares:
            return place / PYPROJECT
    return None


def _searched(folder: Path, home: Path) -> Iterator[Path]:
    """Return the folders that may have files of the project, the nearest first."""
    for place in (folder, *folder.parents):
        if place != folder and place in (home, Path(place.anchor)):
            return
        yield place
        if any((place / mark).exists() for mark in _VCS):
            return


def _passed_over(folder: Path, source: Path | None, home: Path) -> Iterator[str]:
    """Return notes on files that name dependencies and are not read, in the folders up to that of *source*."""
    for place in _searched(folder, home):
        if source == place / REQUIREMENTS:  # What these commands write.
            return
        is_last = source == place / PYPROJECT
        for path in (place / name for name in _UNREAD):
            if path.is_file() and (
                path.stem != "setup" or (not is_last and b"install_requires" in path.read_bytes())
            ):
                yield f"{path} is not read. To use its packages, run there: {_UNREAD[path.name]}"
        if is_last:
            return


def read_dependencies(
    source: Path,
    *,
    project: Path | None = None,
    environ: Mapping[str, str] | None = None,
    category: Category = "cpu",
) -> Dependencies:
    """Read the requirements file, `pyproject.toml` or script *source*; *project* is the folder that is shipped.

    *environ* and *category* are the same as in `find_dependencies`.

    Raises:
        DependencyError: A line or a setting cannot be used, or a file cannot be read.
    """
    source = source.absolute()
    folder = source.parent
    environment = inherited(environ)
    variables = {"PROJECT_ROOT": str(folder), **environment}
    main: Pyproject | None = None
    is_script = source.name != PYPROJECT and script_metadata(source) is not None
    if source.name == PYPROJECT or is_script:
        main = read_pyproject(source, environ=variables, category=category)
        declared = main.declared
    else:
        declared = read_requirements(
            source.name, lambda name: (folder / name).read_bytes(), variables
        )
        beside = folder / PYPROJECT
        if beside.is_file() and not declared.local and read_pyproject(beside).declared.requirements:
            note = (
                f"{source.name} was read; the dependencies in {PYPROJECT} beside it were ignored."
            )
            declared = replace(declared, notes=(*declared.notes, note))
    declared, inner = without_project(declared, folder, project or folder, variables, category)
    own = tuple(line for line in declared.requirements if line.name in OWN_NAMES)
    notes = [
        f"{line.place}: {setting.partition('=')[0]} was ignored: only pip has this option."
        for line in declared.requirements
        for setting in line.settings
    ]
    notes += [
        f"{line.place}: {line.canonical} is not taken from an index: {_OWN_COPY}" for line in own
    ]
    named: dict[str, Mapping[str, Any]] = {}
    for index in chain.from_iterable(part.indexes for part in (main, *inner) if part):
        named.setdefault(index["name"], index)
    of_script = (source, main.settings) if main and main.settings else None
    found = Dependencies(
        source=source,
        is_script=is_script,
        folder=None if of_script else folder,
        requirements=tuple(line for line in declared.requirements if line.name not in OWN_NAMES),
        own=own,
        constraints=declared.constraints,
        options=declared.options,
        source_indexes=tuple(named.values()),
        local=declared.local,
        chosen=main.chosen if main else Chosen(),
        requires_python=",".join(
            {part.requires_python: None for part in (main, *inner) if part and part.requires_python}
        )
        or None,
        notes=(*declared.notes, *notes),
    )
    return _with_settings(found, find_settings(settings_folder(folder), environment, of_script))


def _with_settings(found: Dependencies, settings: Settings) -> Dependencies:
    """Add *settings* to the dependencies *found*.

    Raises:
        DependencyError: They override a package of Kinetic's own.
    """
    if own := sorted(OWN_NAMES & settings.overridden):
        raise DependencyError(
            f"override-dependencies in the settings of uv names {own[0]}: {_OWN_COPY}",
            hint="Remove it there: on an index, the name may belong to somebody else.",
        )
    options = found.options
    if any(settings.values("require-hashes")) and not found.requires_hashes:
        options = (*options, Option("--require-hashes"))
    index = next((option for option in found.options if option.name == "--index-url"), None)
    default = next((each for each in settings.indexes if each.options.get("default")), None)
    notes = settings.notes
    if index is not None and default is not None:
        notes += (
            f"{index.place}: --index-url has no effect: as in uv, {default.named_by} takes precedence.",
        )
    return replace(
        found,
        constraints=tuple(line for line in found.constraints if line.name not in OWN_NAMES),
        options=options,
        settings=settings,
        notes=(*found.notes, *notes),
    )


_OWN_COPY: Final = "it is one of Kinetic's own packages, and your installed copy of it is used."
