"""Input of uv for the installation of exactly the packages of a lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.addresses import full_addresses
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import pylock_text
from kinetic_images.uv_input import project_folder, write_lines


@dataclass(frozen=True)
class InstallInput:
    """Arguments, variables and a lock for `uv pip install`."""

    options: tuple[str, ...]
    lock: Path
    project: Path
    """The folder for which uv finds its settings."""
    variables: Mapping[str, str] = field(repr=False)


def write_install_input(
    folder: Path,
    dependencies: Dependencies,
    packages: Iterable[LockedPackage],
    environ: Mapping[str, str],
) -> InstallInput:
    """Write files to *folder* with which `uv pip install` installs exactly *packages*.

    The files and variables may contain credentials: those of the indexes and addresses that *dependencies* name.
    *environ* is the environment of uv.
    """
    text = pylock_text(packages, addresses=full_addresses(dependencies))
    lock = write_lines(folder / "pylock.toml", [text])
    # uv takes no package from these indexes, only their credentials. Those in its settings it finds itself.
    known = {index.address for index in dependencies.settings.indexes}
    named = {
        index.address: f"{index.options['name']}={index.address}"
        if "name" in index.options
        else index.address
        for index in dependencies.indexes
        if index.address.startswith(("http:", "https:")) and index.address not in known
    }
    indexes = " ".join(filter(None, [environ.get("UV_INDEX"), *named.values()]))
    hosts = [option for option in dependencies.installer_arguments() if "insecure-host" in option]
    # `uv pip install -r pylock.toml` is a preview. All files in the lock have digests.
    options = (*hosts, "--preview-features", "pylock", "--no-require-hashes")
    variables = {"UV_INDEX": indexes} if named else {}
    return InstallInput(options, lock, project_folder(folder, dependencies), variables)
