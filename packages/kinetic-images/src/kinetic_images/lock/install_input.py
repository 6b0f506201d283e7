"""Input of uv for the installation of exactly the packages of a lock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.addresses import full_addresses
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import pylock_text
from kinetic_images.uv_input import UvInput, write_lines


def write_install_input(
    folder: Path, dependencies: Dependencies, packages: Iterable[LockedPackage]
) -> UvInput:
    """Write files to *folder* with which `uv pip install` installs exactly *packages*.

    The files may contain credentials: those of the indexes and addresses that *dependencies* name.
    """
    text = pylock_text(packages, addresses=full_addresses(dependencies))
    lock = write_lines(folder / "pylock.toml", [text])
    # uv takes no package from these indexes, only their credentials.
    text = dependencies.installer_settings(indexes=True)
    settings = write_lines(folder / "uv.toml", [text]) if text else None
    hosts = [option for option in dependencies.installer_arguments() if "insecure-host" in option]
    # `uv pip install -r pylock.toml` is a preview.
    return UvInput((*hosts, "--preview-features", "pylock"), (lock,), settings)
