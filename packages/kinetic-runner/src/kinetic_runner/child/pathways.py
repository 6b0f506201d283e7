"""(child) Under Pathways: `pathwaysutils.initialize()` is called right after user code imports JAX.

It registers the platform `proxy`, for which it needs JAX itself:
https://github.com/AI-Hypercomputer/pathways-utils/blob/main/pathwaysutils/_initialize.py
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from types import ModuleType
from typing import Final

from kinetic_payload.errors import KineticError
from kinetic_payload.layout import Env
from kinetic_runner.child.imports import after_import

_VERSION: Final = re.compile(r"jax[-_]?([0-9]+)\.([0-9]+)")
"""The version of JAX in the tag of Pathways' images: `jax-0.10.0`, `20250929-jax_0.7.2`."""
_REQUIREMENT: Final = "pathwaysutils"
_INSECURE: Final = "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"
"""Without it, jaxlib 0.10.2 refuses the proxy, which is in the same pod, with `Invalid credentials`."""


class PathwaysError(KineticError):
    """The job's packages do not fit Pathways."""


def prepare(tag: str) -> None:
    """Let user code reach the devices through Pathways, whose components have images with the tag *tag*.

    Nothing happens where JAX is not installed.

    Raises:
        PathwaysError: `pathwaysutils` is not installed, or JAX has another version than the components.
    """
    try:
        version = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        return
    check(tag, version, installed=importlib.util.find_spec(_REQUIREMENT) is not None)
    os.environ.setdefault(_INSECURE, "true")  # noqa: TID251 - jaxlib reads it
    after_import("jax", _initialize)


def check(tag: str, version: str, *, installed: bool) -> None:
    """Check that JAX's *version* fits components with *tag*, and that `pathwaysutils` is *installed*.

    The minor versions must be the same. A tag without a version of JAX fits all.

    Raises:
        PathwaysError: They do not.
    """
    found = _VERSION.search(tag)
    if found is not None and [*found.groups()] != version.split(".")[:2]:
        minor = ".".join(found.groups())
        raise PathwaysError(
            f"Pathways runs components for JAX {minor} ({Env.PATHWAYS}={tag}), but the job's image has JAX "
            f"{version}.",
            hint=f"Add jax=={minor}.* to the project's requirements, or use components with a tag for JAX "
            f"{'.'.join(version.split('.')[:2])}.",
        )
    if not installed:
        raise PathwaysError(
            f"{_REQUIREMENT} is not installed, and JAX reaches the TPUs of Pathways only with it.",
            hint=f"Add {_REQUIREMENT} to the project's requirements.",
        )


def _initialize(_: ModuleType) -> None:
    try:
        import pathwaysutils  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise PathwaysError(
            f"{_REQUIREMENT} cannot be imported: {error}",
            hint=f"The versions of {_REQUIREMENT} and of its requirements do not fit each other.",
        ) from error
    pathwaysutils.initialize()
