"""`DataRef`: what replaces a `Data` on the wire, and what it becomes where the function runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from kinetic_payload.errors import DataError
from kinetic_payload.layout import MOUNTS, Env

DataKind = Literal["local", "gcs", "hf"]


@dataclass(frozen=True, kw_only=True)
class DataRef:
    """One `Data` of a call. It travels in the payload's header; the pickle holds only its `key`."""

    key: str
    """Unique in its call: `d0`, `d1`, …"""
    kind: DataKind
    source: str
    """What the user wrote, for messages."""
    is_dir: bool
    name: str
    """The last part of the path: a file keeps its name on the worker."""
    digest: str | None = None
    """Of the uploaded tree, where the kind is `local`."""
    mount: str | None = None
    """The absolute path to appear at, for `volumes`."""
    fuse: bool = False
    local_path: str | None = None
    """Where it lies on the machine that submitted, if it is shown from there and not copied."""
    trust_remote_code: bool = False

    @property
    def mounted_at(self) -> str:
        """The folder at which a container finds it mounted, where it is mounted (`fuse`)."""
        return self.mount or f"{MOUNTS}/{self.key}"


collecting: ContextVar[Callable[[object], str] | None] = ContextVar("collecting", default=None)
"""While a call is pickled: what takes a `Data` and returns its key.

A pickle that user code makes inside a `__reduce__` is seen by no hook of ours, but by this.
"""

_paths: dict[str, str] = {}
_placed = False


def place(paths: dict[str, str]) -> None:
    """Say where each key's data will lie; called by the runner before it unpickles."""
    global _placed
    _placed = True
    _paths.clear()
    _paths.update(paths)


def inside_job() -> bool:
    """Tell whether this process belongs to a job: the runner's own, or one that user code started."""
    # Processes that user code spawns learn it from the environment alone.
    return _placed or bool(os.environ.get(Env.JOB_ID))  # noqa: TID251


def data_path(key: str) -> str:
    """Return the path of a `Data` on this worker; this is what a pickled `Data` turns into.

    Pickles name this function, so its name stays.
    """
    try:
        return _paths[key]
    except KeyError:
        raise DataError(
            f"The call refers to data {key!r}, which was not shipped with it."
        ) from None
