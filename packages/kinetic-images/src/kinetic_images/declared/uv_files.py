"""Settings files of uv: find those that uv reads for a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kinetic_images.declared.requirement_files import decoded
from kinetic_images.declared.toml_text import parsed_toml, table
from kinetic_images.declared.uv_settings import Settings, named_index, setting_indexes
from kinetic_images.errors import DependencyError
from kinetic_images.uv import configuration

PYPROJECT: Final = "pyproject.toml"
UV_TOML: Final = "uv.toml"


def find_settings(start: Path | None, environ: Mapping[str, str]) -> Settings:
    """Find the settings that uv would use for the folder *start* (absolute), or without a project (None).

    As in uv, those of the project come from the nearest `uv.toml`, or `pyproject.toml` with `[tool.uv]`, from
    *start* upwards. They take precedence over those of the user and of the machine. The variable
    `UV_CONFIG_FILE` names one file to read in place of all others. `UV_NO_CONFIG` turns all files off.

    Raises:
        DependencyError: A file cannot be read.
    """
    where = configuration(environ)
    files = [] if where.disabled else [*_files(start, where.file, where.ambient)]
    indexes = [index for name, value in where.indexes.items() for index in named_index(name, value)]
    for path, settings in files:
        indexes += setting_indexes(settings, str(path.absolute().parent))
    return Settings(
        tables=tuple(settings for _, settings in files),
        indexes=tuple(indexes),
        variables=where.choices,
        notes=where.notes,
    )


def _files(
    start: Path | None, named: Path | None, ambient: tuple[Path, ...]
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if named is not None:
        yield named, _table(named)
        return
    for folder in (start, *start.parents) if start is not None else ():
        if (folder / UV_TOML).is_file():
            yield folder / UV_TOML, _table(folder / UV_TOML)
            break
        path = folder / PYPROJECT
        tools = table(_table(path).get("tool")) if path.is_file() else {}
        if "uv" in tools:
            yield path, table(tools["uv"])
            break
    for path in filter(Path.is_file, ambient):
        yield path, _table(path)


def _table(path: Path) -> dict[str, Any]:
    try:
        return parsed_toml(decoded(path.read_bytes()), str(path))
    except OSError as error:
        raise DependencyError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its name and permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise DependencyError(
            f"{path} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8."
        ) from error
