"""Files of a kept lock that their servers no longer have, so that the lock must be made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.dependencies import Dependencies
from kinetic_images.downloads import Downloader, host_of
from kinetic_images.errors import (
    DependencyError,
    DownloadError,
    DownloadUnavailableError,
)
from kinetic_images.lock.addresses import full_addresses
from kinetic_images.lock.index_credentials import IndexCredentials
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.project_locks import ProjectLock
from kinetic_payload.http.retry import RetryPolicy
from kinetic_payload.threads import parallel_map

_REQUESTS: Final = 8
_SHORT: Final = RetryPolicy(limit=3.0)
_MOST: Final = 3
"""How many packages a message names."""


def vanished_files(
    packages: Sequence[LockedPackage],
    dependencies: Dependencies,
    environ: Mapping[str, str] | None = None,
) -> tuple[LockedPackage, ...]:
    """Return those of *packages* whose file is certainly gone: its server says so, or this machine lacks it.

    *environ* is the environment of uv (default: that of the process). A server that does not respond, or that
    refuses the login, is no such case.
    """
    credentials = IndexCredentials(dependencies, environ)
    downloader = Downloader(
        authorization=credentials.authorization,
        addresses=full_addresses(dependencies),
        environ=environ,
        policy=_SHORT,
    )
    silent = set[str]()

    def is_gone(package: LockedPackage) -> bool:
        if package.local_path is not None:
            return not package.local_path.exists()
        host = host_of(package.address)
        if urlsplit(package.address).scheme not in ("http", "https") or host in silent:
            return False
        try:
            return downloader.lacks(package.address, what=package.name)
        except DownloadError as error:
            if isinstance(error, DownloadUnavailableError):
                silent.add(host)  # Each further request would wait as long.
            return False

    gone = parallel_map(is_gone, packages, threads=_REQUESTS)
    return tuple(package for package, is_it in zip(packages, gone, strict=True) if is_it)


def replaceable(
    gone: Iterable[LockedPackage], dependencies: Dependencies, locked: ProjectLock | None
) -> str:
    """Return a sentence on the *gone* files, which another resolution may replace.

    Raises:
        DependencyError: The project itself pins one of them, by *locked* or by a hash.
    """
    texts = []
    for package in gone:
        where = host_of(package.address) or "this machine"
        text = f"{package.name} {package.version}".rstrip()
        place = locked.place(package.name) if locked is not None else None
        for line in dependencies.requirements:
            if line.name == package.name and line.hashes:
                place = dependencies.shown(line.place)
        if place is not None:
            raise DependencyError(
                f"{place}: the file {package.file} of {text} is pinned there, and is not on {where} any more.",
                hint="Pin a version that the index has: write the lock or the hashes again.",
            )
        texts.append(f"{text} (not on {where} any more)")
    more = len(texts) - _MOST
    shown = ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")
    return f"Files of the kept lock have vanished: {shown}. The dependencies are resolved again."
