"""Where an image holds its packages, and how its Python finds them; all builders follow it."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/opt/kn"
"""The folder of everything that packages install: `site`, `bin`, `share` and so on."""
SITE: Final = f"{PREFIX}/site"
"""The folder of the modules."""
BIN: Final = f"{PREFIX}/bin"
"""The folder of the commands; it comes first in PATH."""

# One line: `site` executes each line that begins with `import` by itself. `addsitedir` also executes the
# `.pth` files of packages. What it adds at the end of the path moves before the packages of the base image,
# which come after the standard library. Both folders may be in use at once; only the first one counts.
_PTH: Final = (
    "import site, sys; "
    f"k = {SITE!r}; n = len(sys.path); k in sys.path or site.addsitedir(k); "
    "m = sys.path[n:]; del sys.path[n:]; "
    "i = next((i for i, p in enumerate(sys.path) "
    "if p.rpartition('/')[2] in ('site-packages', 'dist-packages')), n); "
    "sys.path[i:i] = m\n"
)


def path_files(python: str) -> dict[str, bytes]:
    """Return the files that make CPython *python* (`3.11`) of the base image find the packages.

    Debian's Python and Python's own images look in different folders for them; the other folder has no effect.
    Packages in the image take precedence over the base's; the standard library over both.
    """
    return {
        f"/usr/local/lib/python{python}/{folder}/000_kn.pth": _PTH.encode()
        for folder in ("dist-packages", "site-packages")
    }
