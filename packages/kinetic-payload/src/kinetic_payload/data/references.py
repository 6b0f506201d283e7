"""`DataRef`: the reference that replaces a `Data` in a call, and its path in the job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal

from kinetic_payload.errors import DataError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import MOUNTS, Env

DataKind = Literal["local", "gcs", "hf"]


@frozen(kw_only=True)
class DataRef:
    """One `Data` of a call. It is part of the payload's header; the pickle contains only its `key`."""

    key: str
    """Unique in its call: `d0`, `d1`, …"""
    kind: DataKind
    source: str
    """The text that the user wrote, for messages."""
    is_dir: bool
    name: str
    """The last part of the path: a file keeps its name on the worker."""
    digest: str | None = None
    """Of the uploaded tree, where the kind is `local`."""
    mount: str | None = None
    """The absolute mount path, for `volumes`."""
    fuse: bool = False
    local_path: str | None = None
    """Its path on the machine that submitted the job, if the job uses it in place instead of a copy."""
    trust_remote_code: bool = False

    @property
    def mounted_at(self) -> str:
        """The mount path in a container, if it is mounted (`fuse`)."""
        return self.mount or f"{MOUNTS}/{self.key}"


collecting: ContextVar[Callable[[object], str] | None] = ContextVar("collecting", default=None)
"""While a call is pickled: a function that takes a `Data` and returns its key.

It also works in a pickle that user code makes inside a `__reduce__`, which Kinetic's pickler does not see.
"""

_paths: dict[str, str] = {}
_placed = False


def place(paths: dict[str, str]) -> None:
    """Set the path of the data of each key; called by the runner before it unpickles."""
    global _placed
    _placed = True
    _paths.clear()
    _paths.update(paths)


def inside_job() -> bool:
    """Return whether this process belongs to a job: the runner's own, or one that user code started."""
    # A process that user code starts has only the environment variable.
    return _placed or bool(os.environ.get(Env.JOB_ID))  # noqa: TID251


def data_path(key: str) -> str:
    """Return the path of a `Data` on this worker; a pickled `Data` calls this when it is loaded."""
    try:
        return _paths[key]
    except KeyError:
        raise DataError(
            f"The call refers to data {key!r}, which was not shipped with it."
        ) from None
