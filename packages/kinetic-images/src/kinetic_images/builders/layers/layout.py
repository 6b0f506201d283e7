"""Places in a layer: where files of packages go, and what the image's environment needs for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinetic_images.builders import image_layout

PREFIX: Final = image_layout.PREFIX[1:]
"""The folder of all that is installed. Paths in layers have no slash in front."""
SITE: Final = image_layout.SITE[1:]
"""The folder of modules and of the packages' metadata."""
BIN: Final = image_layout.BIN[1:]
INCLUDE: Final = f"{PREFIX}/include"

WHITEOUT: Final = ".wh."
"""The beginning of a file's name that removes a file of the layers below."""
_LONGEST_NAME: Final = 255
"""The most bytes of a name in a folder on Linux."""
_LONGEST_PATH: Final = 4094
"""The most bytes of a path on Linux, without the slash in front and the NUL at its end."""

_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of containers whose image sets none."""


def finder_files(python: str) -> dict[str, bytes]:
    """Return the files that make *python* (`3.11`) of the base find our packages: path → content."""
    return {path[1:]: content for path, content in image_layout.path_files(python).items()}


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the image changes, given those of its *base*."""
    return {"PATH": f"{image_layout.BIN}:{base.get('PATH') or _DEFAULT_PATH}"}


def separate_environment(base: Mapping[str, str]) -> str | None:
    """Return the folder of the base's virtual or conda environment, which `finder_files` do not reach."""
    return base.get("VIRTUAL_ENV") or base.get("CONDA_PREFIX") or None


def fits(path: str) -> bool:
    """Return whether *path* is not too long for a file system: such a layer cannot be unpacked."""
    encoded = path.encode("utf-8", "surrogateescape")
    return len(encoded) <= _LONGEST_PATH and max(map(len, encoded.split(b"/"))) <= _LONGEST_NAME
