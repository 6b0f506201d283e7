"""The text of the Dockerfile of a recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from kinetic_images.builders.image_layout import BIN, PREFIX

INPUTS: Final = "install"
"""The folder of the context that the installation reads. Other files do not invalidate its cached result."""
CA_SECRET: Final = "ca"  # noqa: S105 - a name
"""The build secret with the certificates of the authorities to trust."""
NETRC_SECRET: Final = "netrc"  # noqa: S105 - a name
"""The build secret with the credentials of indexes and repositories, as in `~/.netrc`."""

_RUN: Final = "/run/kinetic"
_GIT: Final = (
    "command -v git > /dev/null || { "
    'if [ -s "$CA" ]; then set -- -o "Acquire::https::CAInfo=$CA"; fi; '
    'apt-get "$@" update -qq && '
    'apt-get "$@" install -y -qq --no-install-recommends git ca-certificates; }'
)


def dockerfile(
    base: str, python: str, placed: Sequence[tuple[str, str]], *, needs_git: bool
) -> str:
    """Return the Dockerfile of an image on *base*, for CPython *python*.

    *placed* are files of the context with their path in the image. The first stage installs, as root and
    with secrets; only the resulting folder, and the files, become layers of the image. The user, the
    entry point and everything else of the base image stay as they are.
    """
    lines = [f"FROM {base} AS install", "USER 0:0"]
    ca = f"--mount=type=secret,id={CA_SECRET},target={_RUN}/ca"
    if needs_git:
        lines.append(f"RUN {ca} \\\n    set --; CA={_RUN}/ca; {_GIT}")
    lines += [
        f"RUN --mount=type=bind,source={INPUTS},target={_RUN}/install \\",
        f"    --mount=type=cache,id=kinetic-uv,target={_RUN}/cache \\",
        f"    --mount=type=secret,id={NETRC_SECRET},target={_RUN}/netrc \\",
        f"    {ca} \\",
        f"    python3 -I {_RUN}/install/install.py {_RUN} {PREFIX} {python}",
        "",
        f"FROM {base}",
        f"COPY --from=install {PREFIX} {PREFIX}",
    ]
    lines += [f"COPY {_words(source, target)}" for source, target in placed]
    lines.append(f"ENV PATH={BIN}:$PATH")
    return "\n".join(lines) + "\n"


def _words(source: str, target: str) -> str:
    """Return the arguments of COPY. Docker expands variables in them, also in the JSON form."""
    return json.dumps([word.replace("\\", "\\\\").replace("$", "\\$") for word in (source, target)])
