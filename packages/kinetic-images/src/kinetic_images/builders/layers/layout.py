"""Layout of the image: where files of packages are placed, and how Python finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "opt/kn"
"""The folder of all that is installed. Paths in layers have no slash in front."""
SITE: Final = f"{PREFIX}/site"
"""The folder of modules and of the packages' metadata."""
BIN: Final = f"{PREFIX}/bin"
INCLUDE: Final = f"{PREFIX}/include"

_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of containers whose image sets none."""

_FINDER: Final = f"""\
import site
if "/{SITE}" not in sys.path:
    before = list(sys.path)
    site.addsitedir("/{SITE}")
    added = [path for path in sys.path if path not in before]
    first = next((number for number, path in enumerate(before)
                  if path.endswith(("/site-packages", "/dist-packages"))), len(before))
    sys.path[:] = [*before[:first], *added, *before[first:]]
"""
"""Put our folder, and those that its `.pth` files add, before the folders of the base's packages.

They come after the standard library. As the code is in a `.pth` file, it also runs under `-I`.
"""


def finder_files(python: str) -> dict[str, bytes]:
    """Return the files that make *python* (`3.11`) of the base find our packages: path → content.

    Debian's Python reads `dist-packages`, the Python of slim images `site-packages`.
    """
    # A line that begins with `import` is executed. The names that it assigns must not leak.
    line = f"import sys; exec({_FINDER!r}, {{'sys': sys}})\n".encode()
    return {
        f"usr/local/lib/python{python}/{folder}/000_kn.pth": line
        for folder in ("dist-packages", "site-packages")
    }


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the image changes, given those of its *base*."""
    return {"PATH": f"/{BIN}:{base.get('PATH') or _DEFAULT_PATH}"}


def separate_environment(base: Mapping[str, str]) -> str | None:
    """Return the folder of the base's virtual or conda environment, which `finder_files` do not reach."""
    return base.get("VIRTUAL_ENV") or base.get("CONDA_PREFIX") or None
