"""Settings files of uv: those that apply to a folder, read and combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kinetic_images.declared.requirement_files import decoded
from kinetic_images.declared.toml_text import Lines, parsed_toml, table
from kinetic_images.declared.uv_settings import Settings, parse_settings, parse_uv_toml
from kinetic_images.errors import DependencyError
from kinetic_images.uv import configuration

PYPROJECT: Final = "pyproject.toml"
UV_TOML: Final = "uv.toml"


@dataclass(frozen=True)
class FoundSettings:
    """Settings of uv for a folder, with their files."""

    file: Path | None
    """The project's own settings file, or None."""
    settings: Settings


def find_settings(
    folder: Path | None,
    environ: Mapping[str, str],
    *,
    start: Path | None = None,
    otherwise: Path | None = None,
) -> FoundSettings:
    """Find and read the settings that uv would use in *folder* (absolute), or outside of any project.

    As in uv they are those of the nearest `uv.toml` or `pyproject.toml` with `[tool.uv]` from
    *start* (*folder*, or the root of its workspace) upwards (of *otherwise*, a `pyproject.toml`, if
    there is none), over those of the user and the machine. `UV_CONFIG_FILE` names one to be read in
    place of all, `UV_NO_CONFIG` none.

    Raises:
        DependencyError: A setting is not supported, is one that uv passes over because it stands
            below *start*, or a file cannot be read.
    """
    where = configuration(environ)
    ambient = Settings(variables=where.origins, notes=where.notes)
    if where.disabled:
        return FoundSettings(None, ambient)
    if where.file is not None:
        path = where.file
        settings = parse_uv_toml(
            _text(path), str(path), str(path.absolute().parent), environ=environ
        )
        return FoundSettings(path, settings.over(ambient))
    found = None
    if folder is not None:
        found = _of_project(start or folder, environ)
        _refuse_passed_over(_of_project(folder, environ), found, start or folder)
    if found is None and otherwise is not None and otherwise.is_file():
        found = _of_folder(otherwise.parent, environ)
    for path in where.ambient:
        if path.is_file():
            of_user = parse_uv_toml(_text(path), str(path), str(path.parent), of_project=False)
            ambient = ambient.over(of_user)
    if found is None:
        return FoundSettings(None, ambient)
    return replace(found, settings=found.settings.over(ambient))


def _refuse_passed_over(
    nearest: FoundSettings | None, found: FoundSettings | None, start: Path
) -> None:
    """Refuse the settings *nearest* to the requirements if uv, which searches from *start*, ignores them."""
    if nearest is None or (found is not None and found.file == nearest.file):
        return
    if nearest.settings.decide:
        place = found.file if found is not None else start / PYPROJECT
        raise DependencyError(
            f"{nearest.file}: it has settings of uv, which uv passes over: the folder belongs to the "
            f"project or workspace in {start}, and only settings from there upwards are read.",
            hint=f"Move them to {place}. An index for [tool.uv.sources] alone may stay, with "
            "explicit = true.",
        )


def _of_project(folder: Path, environ: Mapping[str, str]) -> FoundSettings | None:
    for place in (folder, *folder.parents):
        found = _of_folder(place, environ)
        if found is not None:
            return found
    return None


def _of_folder(folder: Path, environ: Mapping[str, str]) -> FoundSettings | None:
    pyproject, uv_toml = folder / PYPROJECT, folder / UV_TOML
    inner = None
    if pyproject.is_file():
        text = _text(pyproject)
        if "uv" in text:
            inner = table(parsed_toml(text, str(pyproject)).get("tool")).get("uv")
    if uv_toml.is_file():
        settings = parse_uv_toml(_text(uv_toml), str(uv_toml), str(folder), environ=environ)
        others = [key for key in table(inner) if key not in ("sources", "workspace")]
        if others:
            note = f"{pyproject}: [tool.uv] was not read, as uv reads {UV_TOML} in its place."
            settings = replace(settings, notes=(*settings.notes, note))
        return FoundSettings(uv_toml, settings)
    if isinstance(inner, dict):
        lines = Lines(_text(pyproject), str(pyproject))
        return FoundSettings(pyproject, parse_settings(inner, lines, str(folder), environ=environ))
    return None


def _text(path: Path) -> str:
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise DependencyError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its name and permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise DependencyError(
            f"{path} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8."
        ) from error
