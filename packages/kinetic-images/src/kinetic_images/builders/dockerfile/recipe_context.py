"""The build context of a recipe, and its Dockerfile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.builders.dockerfile import install
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.secrets import CA_SECRET, NETRC_SECRET
from kinetic_images.builders.image_layout import BIN, PREFIX, path_files
from kinetic_images.credentials import without_credentials
from kinetic_images.errors import BuildInputError
from kinetic_images.lock.pylock import FOLDER, travelling_pylock
from kinetic_images.recipe import Recipe

INPUTS: Final = "install"
"""The folder of the context that the installation reads. Other files do not invalidate its cached result."""
_FETCHED: Final = ("http", "https")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_RUN: Final = "/run/kinetic"
_GIT: Final = (
    "command -v git > /dev/null || { "
    'if [ -s "$CA" ]; then set -- -o "Acquire::https::CAInfo=$CA"; fi; '
    'apt-get "$@" update -qq && '
    'apt-get "$@" install -y -qq --no-install-recommends git ca-certificates; }'
)


def obstacle(recipe: Recipe) -> str | None:
    """Return why a container build cannot install *recipe*, as a sentence; None if it can."""
    for package in recipe.packages:
        if package.local_path is not None:
            continue
        address = package.address.removeprefix("git+")
        if urlsplit(address).scheme not in _FETCHED:
            return (
                f"{package.name} comes from {without_credentials(address)}, and a build fetches packages by "
                "https only."
            )
    return None


def recipe_context(
    recipe: Recipe,
    uv_version: str,
    uv_program: Path | None = None,
    *,
    environment: Mapping[str, str] = _NOTHING,
) -> BuildContext:
    """Return the build context of *recipe*.

    It contains exactly the locked files: by address with their digests, or as copies if they are on this
    machine. *environment* are variables for uv, such as `UV_DEFAULT_INDEX`: builds of source archives take
    their build requirements from there. No credentials are in it; they are build secrets. *uv_program* runs on
    the target; without it, the build installs *uv_version* with pip.

    Raises:
        BuildInputError: The recipe has an address with credentials.
    """
    lock = travelling_pylock(recipe.packages, recipe.target.python)
    settings = {
        "environment": dict(environment),
        "packages": len(recipe.packages),
        "uv": uv_version,
    }
    addresses = [recipe.base, *(package.address for package in recipe.packages)]
    for address in (*addresses, *environment.values()):
        if without_credentials(address) != address and not address.startswith("git+ssh:"):
            raise BuildInputError(
                f"{without_credentials(address)} contains a user name or a password, which would become part "
                "of the build.",
                hint="Put them into ~/.netrc.",
            )
    placed = path_files(recipe.target.python) | dict(recipe.files)
    names = {target: f"files/{number}" for number, target in enumerate(sorted(placed))}
    # The first stage installs, as root and with secrets; only the resulting folder, and the files, become layers
    # of the image. The user, the entry point and everything else of the base image stay as they are.
    lines = [f"FROM {recipe.base} AS install", "USER 0:0"]
    ca = f"--mount=type=secret,id={CA_SECRET},target={_RUN}/ca"
    if any(not package.file for package in recipe.packages):
        lines.append(f"RUN {ca} \\\n    set --; CA={_RUN}/ca; {_GIT}")
    lines += [
        f"RUN --mount=type=bind,source={INPUTS},target={_RUN}/install \\",
        f"    --mount=type=cache,id=kinetic-uv,target={_RUN}/cache \\",
        f"    --mount=type=secret,id={NETRC_SECRET},target={_RUN}/netrc \\",
        f"    {ca} \\",
        f"    python3 -I {_RUN}/install/install.py {_RUN} {PREFIX} {recipe.target.python}",
        "",
        f"FROM {recipe.base}",
        f"COPY --from=install {PREFIX} {PREFIX}",
    ]
    for target, name in names.items():
        # Docker expands variables in the arguments of COPY, also in the JSON form.
        words = [word.replace("\\", "\\\\").replace("$", "\\$") for word in (name, target)]
        lines.append(f"COPY {json.dumps(words)}")
    lines.append(f"ENV PATH={BIN}:$PATH")
    files = {
        "Dockerfile": "".join(f"{line}\n" for line in lines).encode(),
        f"{INPUTS}/install.py": Path(install.__file__).read_bytes(),
        f"{INPUTS}/pylock.toml": lock.encode(),
        f"{INPUTS}/settings.json": json.dumps(settings, indent=1, sort_keys=True).encode(),
        **{name: placed[target] for target, name in names.items()},
    }
    context = {name: ContextFile(content) for name, content in files.items()}
    for package in recipe.packages:
        if package.local_path is not None:
            copied = ContextFile(package.local_path, sha256=package.sha256)
            context[f"{INPUTS}/{FOLDER}/{package.file}"] = copied
    if uv_program is not None and recipe.packages:
        context[f"{INPUTS}/uv"] = ContextFile(uv_program, executable=True)
    return BuildContext(context)
