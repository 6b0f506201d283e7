"""A project whose packages come from a folder or an index on this machine, and locks of it."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinetic_images.dependencies import Dependencies, read_dependencies
from kinetic_images.lock.cache import ensure_lock
from kinetic_images.lock.packages import Lock, LockedPackage
from kinetic_images.lock.project_locks import find_lock
from kinetic_images.lock.request import LockRequest
from kinetic_images.targets import Target
from kinetic_images.uv import find_uv

TARGET = Target(python="3.11")


def write_wheel(
    path: Path, name: str, version: str, *needs: str, extras: tuple[str, ...] = ()
) -> str:
    """Write a wheel that contains only its metadata; return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    tags = "".join(f"Tag: {tag}\n" for tag in path.stem.split("-", 2)[2:])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in (
            (f"{info}/METADATA", metadata),
            (f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n{tags}"),
            (f"{info}/RECORD", ""),
        ):
            wheel.writestr(zipfile.ZipInfo(file), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def package(name: str = "six", version: str = "1.17.0", **fields: Any) -> LockedPackage:
    """Return a locked package: a wheel of an index, unless *fields* say otherwise."""
    file = f"{name}-{version}-py3-none-any.whl"
    return LockedPackage(
        **{
            "name": name,
            "version": version,
            "file": file,
            "sha256": hashlib.sha256(file.encode()).hexdigest(),
            "address": f"https://files.test/{file}",
            **fields,
        }
    )


class Project:
    """A project, a folder of packages, a home of Kinetic, and a uv that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.root = folder / "project"
        self.packages = folder / "packages"
        self.log = folder / "uv.log"
        self.links = str(self.packages)
        """Where uv finds the packages: a folder or an address."""
        self.root.mkdir()
        self.packages.mkdir()
        (self.root / ".git").mkdir()
        counting = folder / "bin" / "uv"
        counting.parent.mkdir()
        counting.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] || echo "$@" >> {self.log}\nexec {find_uv().program} "$@"\n'
        )
        counting.chmod(0o755)
        self.environ = {
            "PATH": f"{counting.parent}:{os.defpath}",
            "HOME": str(folder),
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_HTTP_RETRIES": "0",
        }
        self.reports: list[str] = []

    def wheel(
        self,
        name: str,
        version: str = "1.0",
        *needs: str,
        tag: str = "py3-none-any",
        extras: tuple[str, ...] = (),
    ) -> str:
        path = self.packages / f"{name}-{version}-{tag}.whl"
        return write_wheel(path, name, version, *needs, extras=extras)

    def source(self, name: str, version: str = "1.0") -> None:
        """Write a source archive whose metadata needs no build."""
        folder = self.folder / f"{name}-{version}"
        folder.mkdir()
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\n'
            '[build-system]\nrequires = ["nothing"]\nbuild-backend = "nothing"\n'
        )
        (folder / "PKG-INFO").write_text(
            f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
        )
        with tarfile.open(self.packages / f"{name}-{version}.tar.gz", "w:gz") as archive:
            archive.add(folder, folder.name)

    def require(self, *lines: str) -> None:
        text = "\n".join(("--no-index", f"--find-links {self.links}", *lines))
        (self.root / "requirements.txt").write_text(text)

    def dependencies(self) -> Dependencies:
        name = "requirements.txt"
        if not (self.root / name).exists():
            name = "pyproject.toml"
        return read_dependencies(self.root / name, environ=self.environ)

    def request(self, target: Target | None = TARGET, **more: Any) -> LockRequest:
        python = target.python if target else "{}.{}.{}".format(*sys.version_info)
        platform = target.platform if target else f"{sys.platform}-{os.uname().machine}"
        dependencies = self.dependencies().for_target(platform, python)
        request = LockRequest(
            dependencies=dependencies,
            target=target,
            interpreter=sys.executable,
            python=python,
            platform=platform,
            locked=find_lock(dependencies),
        )
        return replace(request, **more)

    def lock(self, target: Target | None = TARGET, *, refresh: bool = False, **more: Any) -> Lock:
        return ensure_lock(
            self.request(target, **more),
            home=self.home,
            environ=self.environ,
            report=self.reports.append,
            refresh=refresh,
        )

    def files(self, target: Target | None = TARGET, **more: Any) -> list[str]:
        return [package.file for package in self.lock(target, **more).packages]

    def runs(self) -> int:
        """Return how often uv ran, apart from the look at its settings."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum("cache dir" not in line for line in lines)
