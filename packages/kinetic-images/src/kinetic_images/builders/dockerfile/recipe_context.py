"""The build context of a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from posixpath import normpath
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.builders.dockerfile import install
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.instructions import INPUTS, dockerfile
from kinetic_images.builders.dockerfile.uv_program import UvProgram
from kinetic_images.builders.image_layout import path_files
from kinetic_images.credentials import without_credentials
from kinetic_images.errors import BuildInputError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import FOLDER, travelling_pylock
from kinetic_images.recipe import Recipe

_FETCHED: Final = ("http", "https")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def obstacle(recipe: Recipe) -> str | None:
    """Return why a container build cannot install *recipe*, as a sentence; None if it can."""
    for package in recipe.packages:
        if package.local_path is not None:
            continue
        address = package.address.removeprefix("git+")
        if urlsplit(address).scheme not in _FETCHED:
            return (
                f"{package.name} comes from {without_credentials(address)}, and a build fetches packages by "
                "https only."
            )
    return None


def fetched_addresses(recipe: Recipe) -> list[str]:
    """Return the addresses of the packages that a build fetches; the others travel with it."""
    return [package.address for package in recipe.packages if package.local_path is None]


def recipe_context(
    recipe: Recipe, uv: UvProgram, *, environment: Mapping[str, str] = _NOTHING
) -> BuildContext:
    """Return the build context of *recipe*.

    It contains exactly the locked files: by address with their digests, or as copies if they are on this
    machine. *environment* are variables for uv, such as `UV_DEFAULT_INDEX`: builds of source archives take
    their build requirements from there. No credentials are in it; they are build secrets.

    Raises:
        BuildInputError: The recipe has an address with credentials, or one that a build cannot fetch, or a
            file whose path is not an absolute path of a file.
    """
    found = obstacle(recipe)
    if found is not None:
        raise BuildInputError(found, hint="Use an https address, or build a wheel of the package.")
    local = [package for package in recipe.packages if package.local_path is not None]
    lock = travelling_pylock(recipe.packages, recipe.target.python)
    settings = {
        "environment": dict(environment),
        "packages": len(recipe.packages),
        "uv": uv.version,
    }
    _check_credentials(recipe, environment)
    placed = path_files(recipe.target.python) | dict(recipe.files)
    names = {target: f"files/{number}" for number, target in enumerate(sorted(placed))}
    files = {
        "Dockerfile": dockerfile(
            recipe.base,
            recipe.target.python,
            [(name, _checked(target)) for target, name in names.items()],
            needs_git=any(not package.file for package in recipe.packages),
        ).encode(),
        f"{INPUTS}/install.py": Path(install.__file__).read_bytes(),
        f"{INPUTS}/pylock.toml": lock.encode(),
        f"{INPUTS}/settings.json": json.dumps(settings, indent=1, sort_keys=True).encode(),
        **{name: placed[target] for target, name in names.items()},
    }
    context = {name: ContextFile(content) for name, content in files.items()}
    for package in local:
        context[f"{INPUTS}/{FOLDER}/{package.file}"] = _local_file(package)
    if uv.file is not None and recipe.packages:
        context[f"{INPUTS}/uv"] = ContextFile(uv.file, executable=True)
    return BuildContext(context)


def _local_file(package: LockedPackage) -> ContextFile:
    assert package.local_path is not None
    return ContextFile(package.local_path, sha256=package.sha256)


def _checked(target: str) -> str:
    if not target.startswith("/") or normpath(target) != target or "\n" in target:
        raise BuildInputError(
            f"{target!r} is not the path of a file in an image.",
            hint="Write an absolute path without `.` and `..`.",
        )
    return target


def _check_credentials(recipe: Recipe, environment: Mapping[str, str]) -> None:
    addresses = [recipe.base, *(package.address for package in recipe.packages)]
    for address in (*addresses, *environment.values()):
        if without_credentials(address) != address and not address.startswith("git+ssh:"):
            raise BuildInputError(
                f"{without_credentials(address)} contains a user name or a password, which would become part "
                "of the build.",
                hint="Put them into ~/.netrc.",
            )
