"""Locked packages: which files make an environment, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


@dataclass(frozen=True, kw_only=True, order=True)
class LockedPackage:
    """One package of a lock: the file that is installed, or the commit of a repository."""

    name: str
    """The canonical name."""
    version: str
    """Empty if only a build can determine it."""
    file: str
    """The file name of the wheel or source archive; empty for a repository."""
    sha256: str
    """The digest of the file in hexadecimal digits, or the commit of a repository."""
    address: str = field(compare=False)
    """Where the file or repository is: a URL without credentials; `file:///…` on this machine."""
    size: int | None = field(default=None, compare=False)
    """The size of the file in bytes, if the index names it."""
    direct: bool = field(default=False, compare=False)
    """Whether a requirement names the address; otherwise an index has the package."""
    subdirectory: str = ""
    """The folder of the project in a source archive or repository; empty: its root."""

    @property
    def is_wheel(self) -> bool:
        """Whether it can be installed without a build."""
        return self.file.endswith(".whl")

    @property
    def local_path(self) -> Path | None:
        """The file on this machine, if the address is one."""
        return file_path(self.address)

    @property
    def requirement(self) -> str:
        """The requirement of exactly this package: `NAME==VERSION`, or `NAME @ ADDRESS`."""
        if not self.direct:
            return f"{self.name}=={self.version}"
        commit = "" if self.file else f"@{self.sha256}"
        folder = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
        return f"{self.name} @ {self.address}{commit}{folder}"


def file_path(address: str) -> Path | None:
    """Return the path in a `file:` *address*; None if it is another address."""
    parts = urlsplit(address)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def packages_digest(packages: Iterable[LockedPackage]) -> str:
    """Return the digest of what *packages* contain; addresses and order do not change it."""
    rows = sorted(
        [package.name, package.version, package.file, package.sha256, package.subdirectory]
        for package in packages
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@dataclass(frozen=True)
class Lock:
    """The exact packages of an environment or image."""

    packages: tuple[LockedPackage, ...]
    """Sorted by name."""
    notes: tuple[str, ...] = ()
    """Sentences for the user on how it was resolved."""

    @property
    def digest(self) -> str:
        """The digest of what the packages contain."""
        return packages_digest(self.packages)
