"""Settings files of uv: find, read and combine those that apply to a folder."""

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
    """Settings of uv for a folder, with the file that they come from."""

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
    """Find and read the settings that uv would use in *folder* (absolute), or without a project (None).

    As in uv, the settings of the project come from the nearest `uv.toml`, or `pyproject.toml` with
    `[tool.uv]`, from *start* upwards. They take precedence over those of the user and of the machine.
    `UV_CONFIG_FILE` names one file to read in place of all others. `UV_NO_CONFIG` turns all files off.

    Args:
        folder: The folder of the requirements.
        environ: The variables that configure uv, and that settings may name.
        start: The folder where uv begins its search, such as the root of the workspace; None: *folder*.
        otherwise: A `pyproject.toml` in whose folder to look if the search finds nothing.

    Raises:
        DependencyError: A file cannot be read; a setting is not supported; or uv would ignore a setting,
            because its file is below *start*.
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
        found = _nearest_settings(start or folder, environ)
        _refuse_ignored(_nearest_settings(folder, environ), found, start or folder)
    if found is None and otherwise is not None and otherwise.is_file():
        found = _folder_settings(otherwise.parent, environ)
    for path in where.ambient:
        if path.is_file():
            settings = parse_uv_toml(_text(path), str(path), str(path.parent), of_project=False)
            ambient = ambient.over(settings)
    if found is None:
        return FoundSettings(None, ambient)
    return replace(found, settings=found.settings.over(ambient))


def _refuse_ignored(
    nearest: FoundSettings | None, found: FoundSettings | None, start: Path
) -> None:
    """Refuse the settings *nearest* to the requirements if uv, which searches from *start*, ignores them."""
    if nearest is None or (found is not None and found.file == nearest.file):
        return
    if nearest.settings.decide:
        place = found.file if found is not None else start / PYPROJECT
        raise DependencyError(
            f"{nearest.file}: uv ignores the settings in this file. Its folder belongs to the project "
            f"or workspace in {start}, and uv reads only settings from there upwards.",
            hint=f"Move them to {place}. An index for [tool.uv.sources] alone may stay, with "
            "explicit = true.",
        )


def _nearest_settings(folder: Path, environ: Mapping[str, str]) -> FoundSettings | None:
    for place in (folder, *folder.parents):
        found = _folder_settings(place, environ)
        if found is not None:
            return found
    return None


def _folder_settings(folder: Path, environ: Mapping[str, str]) -> FoundSettings | None:
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
            note = f"{pyproject}: [tool.uv] was ignored: uv reads {UV_TOML} instead."
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
