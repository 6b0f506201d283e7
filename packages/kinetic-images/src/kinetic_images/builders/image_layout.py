"""Where an image holds its packages, and how its Python finds them; all builders follow it."""

from __future__ import annotations

from typing import Final

from kinetic_payload.layout import Env

PREFIX: Final = "/opt/kn"
"""The folder of everything that packages install: `site`, `bin`, `share` and so on."""
SITE: Final = f"{PREFIX}/site"
"""The folder of the modules."""
BIN: Final = f"{PREFIX}/bin"
"""The folder of the commands; it comes first in PATH."""
LAYER_PREFIX, LAYER_SITE, LAYER_BIN = PREFIX[1:], SITE[1:], BIN[1:]
"""The same folders as paths in a layer, which have no slash in front."""

_FINDER: Final = f"""\
import os, site
if "{SITE}" not in sys.path:
    before = list(sys.path)
    site.addsitedir("{SITE}")
    added = [path for path in sys.path if path not in before]
    own = os.environ.get("{Env.PACKAGES}")
    first = next((number for number, path in enumerate(before) if path != own
                  and path.endswith(("/site-packages", "/dist-packages"))), len(before))
    sys.path[:] = [*before[:first], *added, *before[first:]]
"""
"""Put our folder, and those that its `.pth` files add, before the folders of the base's packages.

They come after the standard library, and after what a job in prebuilt mode has installed. As the code is in a `.pth` file, it also runs under `-I`.
"""


def path_files(python: str) -> dict[str, bytes]:
    """Return the files that make CPython *python* (`3.11`) of the base image find the packages.

    Debian's Python and Python's own images look in different folders for them; the other folder has no effect.
    Packages in the image take precedence over the base's; the standard library over both.
    """
    # A line that begins with `import` is executed. The names that it assigns must not leak.
    line = f"import sys; exec({_FINDER!r}, {{'sys': sys}})\n".encode()
    return {
        f"/usr/local/lib/python{python}/{folder}/000_kn.pth": line
        for folder in ("dist-packages", "site-packages")
    }


WHITEOUT: Final = ".wh."
"""The beginning of a file's name that removes a file of the layers below."""
_LONGEST_NAME: Final = 255
"""The most bytes of a name in a folder on Linux."""
_LONGEST_PATH: Final = 4094
"""The most bytes of a path on Linux, without the slash in front and the NUL at its end."""
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of containers whose image sets none."""


def fits(path: str) -> bool:
    """Return whether *path* is not too long for a file system: such a layer cannot be unpacked."""
    encoded = path.encode("utf-8", "surrogateescape")
    return len(encoded) <= _LONGEST_PATH and max(map(len, encoded.split(b"/"))) <= _LONGEST_NAME
