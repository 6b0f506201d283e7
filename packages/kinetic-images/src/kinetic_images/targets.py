"""Targets: the Python and the platform on which a function will run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from packaging import tags

Machine = Literal["x86_64", "aarch64"]
"""A processor, as Python names it on Linux."""
Category = Literal["cpu", "gpu", "tpu"]
"""A kind of accelerator."""

DEBIAN_12_GLIBC: Final = (2, 36)
"""The C library of Debian 12 and later, on which the published slim images of Python are based."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of Linux machine: CPython's minor version, the processor and the C library."""

    python: str
    """The minor version, as `3.11`. Patch versions run the same packages."""
    machine: Machine = "x86_64"
    glibc: tuple[int, int] = DEBIAN_12_GLIBC
    """The oldest glibc on which it must run. A lower version may select older packages."""

    @property
    def platform(self) -> str:
        """The platform, as uv names it: `x86_64-manylinux_2_36`."""
        return f"{self.machine}-manylinux_{self.glibc[0]}_{self.glibc[1]}"

    @property
    def architecture(self) -> str:
        """The processor, as registries name it: `amd64` or `arm64`."""
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.machine]

    def markers(self, patch: int = 0) -> Mapping[str, str]:
        """Return all marker variables; nothing is known of the kernel.

        *patch* is the patch version of Python; uv assumes 0.
        """
        unknown = {"platform_release": "", "platform_version": ""}
        return {**unknown, **target_environment(self.platform, f"{self.python}.{patch}")}

    def tags(self) -> Iterator[tags.Tag]:
        """Iterate over the tags of wheels that the target can install, the best first."""
        major, minor = map(int, self.python.split("."))
        version, platforms = (major, minor), [f"linux_{self.machine}"]
        for glibc in range(self.glibc[1], _OLDEST_GLIBC[self.machine] - 1, -1):
            names = [f"manylinux_{self.glibc[0]}_{glibc}", *_LEGACY_MANYLINUX.get(glibc, ())]
            platforms += [f"{name}_{self.machine}" for name in names]
        yield from tags.cpython_tags(version, [f"cp{major}{minor}"], platforms)
        yield from tags.compatible_tags(version, f"cp{major}{minor}", platforms)


_OLDEST_GLIBC: Final = {"x86_64": 5, "aarch64": 17}
"""The oldest minor version for which manylinux is defined (PEP 571, PEP 599)."""
_LEGACY_MANYLINUX: Final = {17: ["manylinux2014"], 12: ["manylinux2010"], 5: ["manylinux1"]}


_MACHINES: Final = {"amd64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}
_DARWIN: Final = re.compile(r"darwin|macos|macosx|apple")


def target_environment(platform: str, python: str) -> Mapping[str, str]:
    """Return the marker variables of CPython *python* (`3.11` or `3.11.7`) on *platform*.

    *platform* names system and machine as Python does (`linux-x86_64`, `darwin-arm64`,
    `macosx-14.0-arm64`) or as uv does (`x86_64-manylinux_2_36`, `aarch64-apple-darwin`).
    Variables that are unknown are left out: the system's release and version, and the full version of
    Python if *python* is only a minor version.
    """
    lowered = platform.lower()
    darwin = bool(_DARWIN.search(lowered))
    machine = next(
        (name for name in ("x86_64", "aarch64", "arm64", "amd64", "armv7l") if name in lowered), ""
    )
    if darwin and machine == "aarch64":
        machine = "arm64"
    minor = ".".join(python.split(".")[:2])
    full = {}
    if python.count(".") >= 2:
        full = {"implementation_version": python, "python_full_version": python}
    return {
        **full,
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": _MACHINES.get(machine, machine),
        "platform_python_implementation": "CPython",
        "platform_system": "Darwin" if darwin else "Linux",
        "python_version": minor,
        "sys_platform": "darwin" if darwin else "linux",
    }
