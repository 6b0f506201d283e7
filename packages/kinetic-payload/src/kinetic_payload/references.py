"""`DataRef`: what replaces a `Data` on the wire, and what it becomes where the function runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinetic_payload.errors import DataError

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
    trust_remote_code: bool = False


_paths: dict[str, str] = {}


def place(paths: dict[str, str]) -> None:
    """Say where each key's data will lie; called by the runner before it unpickles."""
    _paths.clear()
    _paths.update(paths)


def data_path(key: str) -> str:
    """Return the path of a `Data` on this worker; this is what a pickled `Data` turns into."""
    try:
        return _paths[key]
    except KeyError:
        raise DataError(
            f"The call refers to data {key!r}, which was not shipped with it."
        ) from None
