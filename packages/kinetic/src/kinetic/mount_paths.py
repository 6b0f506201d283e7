"""Where volumes may appear: mount paths checked before anything is packaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kinetic.errors import InvalidRequestError

if TYPE_CHECKING:
    from kinetic.data import Data

WORKSPACE: Final = "/workspace"
"""Where the project lies in a container."""

_TAKEN: Final = {
    "/app": "the runner lies there",
    WORKSPACE: "the project lies there",
    "/tmp": "it belongs to running programs",  # noqa: S108 - refused, not used
    **dict.fromkeys(
        ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"),
        "it belongs to the system",
    ),
    **dict.fromkeys(("/proc", "/sys", "/dev", "/run"), "it belongs to the kernel and the system"),
}
"""Neither these nor anything below them."""

_HOLD_OTHERS: Final = frozenset({"/home", "/root", "/var", "/opt"})
"""Not themselves, since a volume would hide what is there; below them is fine."""

_HINT: Final = "Take a path of its own, such as /data."


def check_volumes(volumes: Mapping[str, object]) -> dict[str, Data]:
    """Return *volumes* by normalised mount path.

    Raises:
        InvalidRequestError: A path cannot be mounted at, or a value is not a `Data`.
    """
    from kinetic.data import Data

    checked: dict[str, Data] = {}
    for path, data in volumes.items():
        mount = check_mount_path(path)
        if not isinstance(data, Data):
            raise InvalidRequestError(
                f"The volume {path!r} is a {type(data).__name__}, not a kinetic.Data.",
                hint=f"Write volumes={{{path!r}: kinetic.Data(...)}}.",
            )
        if mount in checked:
            raise InvalidRequestError(
                f"Two volumes would appear at {mount!r}.", hint="Give each a path of its own."
            )
        checked[mount] = data
    _check_nesting(sorted(checked))
    return checked


def check_mount_path(path: object) -> str:
    """Return *path* without trailing or doubled slashes if a volume may appear there.

    Raises:
        InvalidRequestError: It may not; the message says why.
    """
    if not isinstance(path, str):
        raise InvalidRequestError(f"The mount path {path!r} is not text.", hint=_HINT)
    if not path.startswith("/"):
        raise InvalidRequestError(
            f"The mount path {path!r} is not absolute.", hint=f"Begin it with '/'. {_HINT}"
        )
    if "\0" in path or "\n" in path or any("\ud800" <= c <= "\udfff" for c in path):
        raise InvalidRequestError(
            f"The mount path {path!r} holds characters that no mount path can have.", hint=_HINT
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidRequestError(f"The mount path {path!r} holds '..'.", hint="Write it out.")
    mount = "/" + "/".join(parts)
    if mount == "/" or mount in _HOLD_OTHERS:
        raise InvalidRequestError(
            f"Nothing can be mounted at {mount!r}: it would hide what is there.", hint=_HINT
        )
    for taken, why in _TAKEN.items():
        if _is_below(mount, taken):
            raise InvalidRequestError(f"Nothing can be mounted at {mount!r}: {why}.", hint=_HINT)
    return mount


def _check_nesting(mounts: list[str]) -> None:
    for outer in mounts:
        for inner in mounts:
            if inner != outer and _is_below(inner, outer):
                raise InvalidRequestError(
                    f"The volume {inner!r} lies inside the volume {outer!r}.",
                    hint="Put them side by side.",
                )


def _is_below(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)
