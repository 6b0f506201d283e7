"""Which uv a build uses: this machine's own if it runs on the target, otherwise one from pip's index."""

from __future__ import annotations

import importlib.metadata
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kinetic_images.errors import UvNotFoundError
from kinetic_images.targets import Machine, Target

_MACHINES: Final[dict[int, Machine]] = {62: "x86_64", 183: "aarch64"}
"""The field `e_machine` of ELF files → the machine."""


@dataclass(frozen=True)
class UvProgram:
    """The uv of a build."""

    version: str
    file: Path | None = None
    """A program that runs on the target; None: the build installs that version with pip."""


def find_uv_program(target: Target) -> UvProgram:
    """Find the uv for builds for *target*.

    The program in the installed distribution `uv` is used if it is for the target's machine: on Linux it needs
    glibc 2.17, or no C library at all. So such a build needs neither pip nor an index for it.

    Raises:
        UvNotFoundError: The distribution `uv` is not installed.
    """
    try:
        version = importlib.metadata.version("uv")
        from uv import find_uv_bin

        file = Path(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise UvNotFoundError(
            "The Python package uv is not installed here, so its version is unknown to builds.",
            hint="Install it with: pip install uv",
        ) from error
    return UvProgram(version, file if runs_on(file, target) else None)


def runs_on(program: Path, target: Target) -> bool:
    """Return whether *program* is a Linux program for the machine of *target*."""
    if sys.platform != "linux":
        return False
    with program.open("rb") as stream:
        head = stream.read(20)
    if len(head) < 20 or head[:6] != b"\x7fELF\x02\x01":
        return False
    return _MACHINES.get(struct.unpack_from("<H", head, 18)[0]) == target.machine
