"""`pylock.toml` (PEP 751): the exact files of a lock, read for one target and written."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    PylockSelectError,
    PylockUnsupportedVersionError,
    PylockValidationError,
)
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.pyproject import Chosen
from kinetic_images.declared.toml_text import parsed_toml, toml_text
from kinetic_images.errors import DependencyError
from kinetic_images.lock.packages import LockedPackage, file_path
from kinetic_images.targets import Target

FOLDER: Final = "packages"
"""The folder beside a lock that travels, with the files that no index has."""
_HASH: Final = "sha256"
_File = PackageWheel | PackageSdist | PackageArchive

Allowed = Mapping[str, frozenset[str]]
"""Canonical name of a package → the SHA-256 digests that its file may have."""


def read_pylock(
    text: str,
    file: str,
    target: Target | None,
    *,
    allowed: Allowed | None = None,
    patch: int = 0,
    optional: Chosen | None = None,
) -> tuple[LockedPackage, ...]:
    """Return the packages in the `pylock.toml` *text* that *target* installs; None: this interpreter.

    Of several wheels of a package, the best one is chosen among those whose digest is *allowed*. *file* is
    the name for messages, and relative paths are relative to its folder. *patch* is the patch version of the
    target's Python for markers. *optional* are the extras and groups to install; the groups that the lock
    installs by default are always among them. The project itself, a folder that contains the lock, is left out.

    Raises:
        DependencyError: The text is not a valid lock, or not for this target; or a package has no SHA-256.
    """
    document = parsed_toml(text, file)
    try:
        pylock = Pylock.from_dict(document)
        packages = []
        for package in pylock.packages:
            digests = (allowed or {}).get(package.name)
            wheels = [
                wheel
                for wheel in package.wheels or ()
                if wheel.hashes.get(_HASH) in (digests or ())
            ]
            # Without any, the caller reports the digest of the wheel that does not match.
            packages.append(replace(package, wheels=wheels) if wheels else package)
        pylock = replace(pylock, packages=packages)
        environment: Any = dict(target.markers(patch)) if target else None
        tags: Sequence[Tag] = [*(target.tags() if target else sys_tags())]
        wanted = optional or Chosen()
        chosen = [
            *pylock.select(
                environment=environment,
                tags=tags,
                extras=wanted.extras,
                dependency_groups=[*(pylock.default_groups or ()), *wanted.groups],
            )
        ]
    except (PylockValidationError, PylockUnsupportedVersionError, PylockSelectError) as error:
        raise DependencyError(
            f"{file}: {error}.", hint="Write the lock again for this Python and platform."
        ) from error
    folder = posixpath.dirname(file)

    def is_project(source: object) -> bool:
        own = _file_address(".", folder)
        return isinstance(source, PackageDirectory) and _file_address(source.path, folder) == own

    return tuple(
        sorted(
            _locked(package, source, folder, file)
            for package, source in chosen
            if not is_project(source)
        )
    )


def _locked(
    package: Package,
    source: _File | PackageVcs | PackageDirectory,
    folder: str,
    file: str,
) -> LockedPackage:
    version = str(package.version) if package.version else ""
    if isinstance(source, PackageDirectory):
        raise DependencyError(
            f"{file}: {package.name} is a folder on this machine ({source.path}), which does not exist "
            "where the function runs.",
            hint="Build a wheel of it, and name the wheel instead. Or write the lock without it.",
        )
    address = source.url or _file_address(source.path or "", folder)
    if isinstance(source, PackageVcs):
        name, digest, direct = "", source.commit_id, True
        address = f"{source.type}+{kept_address(address)}"
    else:
        name = getattr(source, "filename", None) or posixpath.basename(
            unquote(urlsplit(address).path)
        )
        digest, direct = source.hashes.get(_HASH, "").lower(), isinstance(source, PackageArchive)
        address = kept_address(address, direct=direct)
    if not digest:
        raise DependencyError(
            f"{file}: there is no SHA-256 of {name}.",
            hint="Kinetic installs only files that it can verify. Ask for SHA-256 digests in the lock.",
        )
    return LockedPackage(
        name=package.name,
        version=version,
        file=name,
        sha256=digest,
        address=address,
        direct=direct,
        size=getattr(source, "size", None),
        subdirectory=getattr(source, "subdirectory", None) or "",
    )


def kept_address(address: str, *, direct: bool = False) -> str:
    """Return *address* without what may be secret: the password, and the query of a *direct* URL.

    The user of an SSH address is no secret, and without it the address would not work.
    """
    parts = urlsplit(address)
    if direct:
        address = urlunsplit(parts._replace(query="", fragment=""))
    is_ssh = parts.scheme.endswith("ssh") and parts.username and not parts.password
    return address if is_ssh else without_credentials(address)


def public_text(requirement: str) -> str:
    """Return the text of a *requirement* without what may be secret in its address."""
    name, at, address = requirement.partition(" @ ")
    return f"{name}{at}{kept_address(address, direct='+' not in address)}" if at else requirement


def _file_address(path: str, folder: str) -> str:
    return Path(posixpath.normpath(posixpath.join(folder, path))).absolute().as_uri()


def travelling_pylock(packages: Iterable[LockedPackage], python: str) -> str:
    """Return the `pylock.toml` that installs *packages* for CPython *python* elsewhere.

    Their files from this machine are in the folder `FOLDER` beside it.
    """
    packages = sorted(packages)
    local = [package for package in packages if package.local_path is not None]
    return pylock_text(
        # As if an index had each file that an index could have: then uv notes no address of it.
        (replace(each, direct=not (each.is_wheel or _is_sdist(each))) for each in packages),
        addresses={package.address: f"{FOLDER}/{package.file}" for package in local},
        python=python,
    )


def _is_sdist(package: LockedPackage) -> bool:
    try:
        name, version = parse_sdist_filename(package.file)
    except InvalidSdistFilename:
        return False
    return name == canonicalize_name(package.name) and str(version) == package.version


def pylock_text(
    packages: Iterable[LockedPackage],
    *,
    addresses: Mapping[str, str] | None = None,
    python: str | None = None,
) -> str:
    """Return a `pylock.toml` that names exactly *packages*.

    *addresses* replaces addresses of packages, for instance by those with credentials, or by paths relative to
    the lock. It is for the minor version *python* only, if that is given.
    """
    document: dict[str, Any] = {"lock-version": "1.0", "created-by": "kinetic"}
    if python:
        document["requires-python"] = f"=={python}.*"
    rows = ""
    for package in packages:
        address = (addresses or {}).get(package.address, package.address)
        row: dict[str, Any] = {"name": package.name}
        if package.version:
            row["version"] = package.version
        more = {"subdirectory": package.subdirectory} if package.subdirectory else {}
        # uv rejects `file:` URLs of archives.
        path = file_path(address) or (None if "://" in address else address)
        place = {"url": address} if path is None else {"path": str(path)}
        size = {} if package.size is None else {"size": package.size}
        entry = {**place, **size, "hashes": {_HASH: package.sha256}}
        if not package.file:
            kind, _, url = address.partition("+")
            row["vcs"] = {"type": kind, "url": url, "commit-id": package.sha256, **more}
        elif package.direct or more or not package.version:
            row["archive"] = {**entry, **more}
        elif package.is_wheel:
            row["wheels"] = [{"name": package.file, **entry}]
        else:
            row["sdist"] = {"name": package.file, **entry}
        rows += f"\n[[packages]]\n{toml_text(row)}"
    # TOML cannot express an empty array of tables.
    return toml_text(document) + (rows or "packages = []\n")
