"""Settings files of uv: find those that uv reads for a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kinetic_images.declared.requirement_files import read_text
from kinetic_images.declared.requirements import expanded
from kinetic_images.declared.toml_text import parsed_toml, table
from kinetic_images.declared.uv_settings import (
    NO_EFFECT,
    Settings,
    named_index,
    setting_indexes,
    with_absolute_addresses,
)
from kinetic_images.errors import DependencyError
from kinetic_images.uv import choice_variables, index_variables

PYPROJECT: Final = "pyproject.toml"
UV_TOML: Final = "uv.toml"
_REPLACEMENTS: Final = {
    "PIP_CONSTRAINT": "-c FILE in requirements.txt",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_NO_INDEX": "--no-index in requirements.txt",
    "PIP_PRE": "--pre in requirements.txt",
    "PIP_REQUIRE_HASHES": "--require-hashes in requirements.txt",
    "UV_BUILD_CONSTRAINT": "build-constraint-dependencies in the settings of uv",
    "UV_CONSTRAINT": "constraint-dependencies in the settings of uv",
    "UV_NO_INDEX": "--no-index in requirements.txt",
    "UV_OVERRIDE": "override-dependencies in the settings of uv",
    "UV_REQUIRE_HASHES": "--require-hashes in requirements.txt",
}
"""Variables that have no effect → what to use instead."""


_LISTS: Final = (
    "build-constraint-dependencies",
    "constraint-dependencies",
    "override-dependencies",
)
"""Settings with requirements, in which uv replaces variables."""


def find_settings(
    start: Path | None,
    environ: Mapping[str, str],
    script: tuple[Path, Mapping[str, Any]] | None = None,
) -> Settings:
    """Find the settings that uv would use for the folder *start* (absolute), or without a project (None).

    As in uv, those of the project come from the nearest `uv.toml`, or `pyproject.toml` with `[tool.uv]`, from
    *start* upwards. They take precedence over those of the user and of the machine. The variable
    `UV_CONFIG_FILE` names one file to read in place of all others. `UV_NO_CONFIG` turns all files off. A *script*
    with settings of its own, as (path, settings), takes the place of the project's file.

    Raises:
        DependencyError: A file cannot be read, or a script's settings would have to be combined with others.
    """
    disabled = environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes", "on", "y", "t")
    files = [] if disabled else [*_files(start, environ)]
    if script is not None:
        shared = [*_files(None, environ)]
        of_project = [
            str(each[0]) for each in files if each not in shared and each[1].keys() - NO_EFFECT
        ]
        if disabled or environ.get("UV_CONFIG_FILE") or of_project:
            what = (*of_project, "UV_CONFIG_FILE or UV_NO_CONFIG")[0]
            raise DependencyError(
                f"The settings of uv in {script[0]} cannot be combined with {what}.",
                hint=f"Write all of them into one place: the script, or {UV_TOML} in its folder.",
            )
        files = [script, *shared]
    indexes = [
        index
        for name, value in index_variables(environ).items()
        for index in named_index(name, value)
    ]
    for path, settings in files:
        indexes += setting_indexes(settings, str(path.absolute().parent))
    tables = []
    for _, settings in files:
        lists = {key: settings[key] for key in _LISTS if isinstance(settings.get(key), list)}
        # uv refuses what is no text.
        own = {key: [expanded(str(text), environ) for text in lists[key]] for key in lists}
        tables.append({**settings, **own})
    return Settings(
        tables=tuple(tables),
        indexes=tuple(indexes),
        variables=choice_variables(environ),
        notes=tuple(
            f"The environment variable {name} has no effect. Use {instead}."
            for name, instead in _REPLACEMENTS.items()
            if environ.get(name)
        ),
        of_script=with_absolute_addresses(script[1], str(script[0].parent)) if script else {},
    )


def _files(
    start: Path | None, environ: Mapping[str, str]
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if environ.get("UV_CONFIG_FILE"):
        named = Path(environ["UV_CONFIG_FILE"])
        yield named, toml_of(named)
        return
    for folder in (start, *start.parents) if start is not None else ():
        if (folder / UV_TOML).is_file():
            yield folder / UV_TOML, toml_of(folder / UV_TOML)
            break
        path = folder / PYPROJECT
        tools = table(toml_of(path).get("tool")) if path.is_file() else {}
        if "uv" in tools:
            yield path, table(tools["uv"])
            break
    home = environ.get("HOME")
    own = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    shared = filter(None, (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"))
    machine = [*(Path(folder, "uv", UV_TOML) for folder in shared), Path("/etc/uv", UV_TOML)]
    ambient = [Path(own, "uv", UV_TOML)] if own else []
    # Of those of the machine, uv reads the first.
    for path in filter(Path.is_file, [*ambient, *[*filter(Path.is_file, machine)][:1]]):
        yield path, toml_of(path)


def text_of(path: Path) -> str:
    """Return the text of the file *path*.

    Raises:
        DependencyError: It cannot be read.
    """
    return read_text(str(path), lambda _: path.read_bytes())


def toml_of(path: Path) -> dict[str, Any]:
    """Return the document in the file *path*.

    Raises:
        DependencyError: It cannot be read, or is not TOML.
    """
    return parsed_toml(text_of(path), str(path))
