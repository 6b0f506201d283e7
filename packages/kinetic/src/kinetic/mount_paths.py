"""Validate the mount paths of volumes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kinetic.data import Data
from kinetic.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM_PATHS = (
    *("/app", "/workspace"),  # the runner and the project, in a container
    *("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"),
    *("/proc", "/sys", "/dev", "/run", "/var/run", "/tmp"),  # noqa: S108 - refused, not used
)
"""Paths at which no volume may be mounted, nor below them."""

FULL_PATHS = ("/home", "/opt", "/root", "/var")
"""Paths at which no volume may be mounted, because it would hide their contents; below them it may."""


def check_volumes(
    volumes: Mapping[str, object] | None, *, workspaces: Iterable[str] = ()
) -> dict[str, Data]:
    """Return *volumes* with normalised mount paths.

    Args:
        volumes: Mount path → `Data`.
        workspaces: Working folders of jobs: nothing may be mounted over or inside them.

    Raises:
        InvalidRequestError: A mount path is not valid, or a value is not a `Data`.
    """
    checked: dict[str, Data] = {}
    for path, data in (volumes or {}).items():
        mount = _checked_path(path, tuple(workspaces))
        if not isinstance(data, Data):
            raise InvalidRequestError(
                f"volumes[{path!r}] is a {type(data).__name__}, not a kinetic.Data.",
                hint=f"Write volumes={{{path!r}: kinetic.Data(...)}}.",
            )
        for other in checked:
            if mount == other:
                raise _refused(f"Two volumes have the mount path {mount}.")
            if _inside(mount, other) or _inside(other, mount):
                raise _refused(f"The mount paths {other} and {mount} overlap.")
        checked[mount] = data
    return checked


def _checked_path(path: object, workspaces: tuple[str, ...]) -> str:
    if not isinstance(path, str) or not path.startswith("/"):
        raise _refused(f"The mount path {path!r} is not absolute.")
    if ".." in PurePosixPath(path).parts:
        raise _refused(f"The mount path {path!r} contains '..'.")
    if not path.isprintable():
        raise _refused(f"The mount path {path!r} contains characters that cannot be printed.")
    mount = "/" + posixpath.normpath(path).strip("/")
    cannot = f"A volume cannot be mounted at {mount}"
    if mount == "/" or mount in FULL_PATHS:
        raise _refused(f"{cannot}: it would hide the contents of that folder.")
    for taken in SYSTEM_PATHS:
        if mount == taken or _inside(mount, taken):
            raise _refused(f"{cannot}: {taken} belongs to the system.")
    for taken in workspaces:
        if mount == taken or _inside(mount, taken) or _inside(taken, mount):
            raise _refused(f"{cannot}: jobs work in {taken}.")
    return mount


def _refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, hint="Give each volume a folder of its own, such as /data.")


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
