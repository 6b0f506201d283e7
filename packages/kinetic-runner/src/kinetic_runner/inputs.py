"""Bring a call's data to where the function will look for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kinetic_payload.errors import DataError
from kinetic_payload.references import DataRef
from kinetic_payload.store import Store
from kinetic_runner.workspace import Workspace, disk_words

Download = Callable[[Store, DataRef, Path], object]
"""Bring the data of a reference to a path that does not exist yet, every byte verified."""

_THREADS: Final = 4


class Plan(NamedTuple):
    """Where everything goes, decided before anything is downloaded."""

    paths: Mapping[str, str]
    """What the function sees, by key."""
    downloads: tuple[Transfer, ...]
    binds: Mapping[str, Path]
    """Mount path → the folder behind it, for private mounts."""


class Transfer(NamedTuple):
    """One transfer. References to the same data share it, unless they are mounted."""

    ref: DataRef
    path: Path
    behind: Path | None = None
    """The private mount's folder that is filled with it."""


def plan(refs: Sequence[DataRef], workspace: Workspace, *, private_mounts: bool) -> Plan:
    """Decide where the data of *refs* goes; touches nothing.

    Raises:
        DataError: A reference is of a kind that this runner does not serve.
    """
    paths: dict[str, str] = {}
    binds: dict[str, Path] = {}
    downloads: list[Transfer] = []
    shared: dict[tuple[str | None, str, bool], Path] = {}
    for ref in refs:
        _refuse_unserved(ref)
        path = workspace.data(ref.key, ref.name)
        if ref.mount is None:
            known = shared.setdefault((ref.digest, ref.name, ref.is_dir), path)
            if known is path:
                downloads.append(Transfer(ref, path))
            paths[ref.key] = str(known)
            continue
        # A file lands in the folder that is mounted, under its own name.
        seen = ref.mount if ref.is_dir else f"{ref.mount}/{ref.name}"
        paths[ref.key] = seen
        if private_mounts:
            binds[ref.mount] = workspace.mount(ref.key)
            downloads.append(Transfer(ref, path, binds[ref.mount]))
        else:
            downloads.append(Transfer(ref, Path(seen)))
    return Plan(paths, tuple(downloads), binds)


def make_mount_points(decided: Plan) -> None:
    """Make what private mounts show until their data is there: empty folders."""
    for one in decided.downloads:
        if one.behind is not None:
            one.behind.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            one.behind.mkdir()


def bring(decided: Plan, store: Store, download: Download) -> None:
    """Download everything of a plan, several items at a time.

    Raises:
        DataError: Something of it could not be brought; the message names it and its path.
    """
    wanted = decided.downloads
    if len(wanted) <= 1:
        for one in wanted:
            _bring_one(one, store, download)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="kinetic-data") as pool:
        try:
            for _ in pool.map(lambda one: _bring_one(one, store, download), wanted):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _bring_one(one: Transfer, store: Store, download: Download) -> None:
    seen_at = one.ref.mount or str(one.path)
    try:
        one.path.parent.mkdir(parents=True, exist_ok=True)
        download(store, one.ref, one.path)
        if one.behind is not None:
            _fill(one.behind, one.path, is_dir=one.ref.is_dir)
    except Exception as error:
        words = disk_words(error, one.path) or getattr(error, "message", None) or str(error)
        raise DataError(
            f"The data {one.ref.source!r} could not be brought to {seen_at}: {words}",
            hint=getattr(error, "hint", None),
        ) from error


def _fill(behind: Path, path: Path, *, is_dir: bool) -> None:
    """Move what lies at *path* into what is mounted already: a mount shows an inode, not a name."""
    import shutil

    if not is_dir:
        os.rename(path, behind / path.name)  # noqa: PTH104
        return
    for entry in os.scandir(path):
        os.rename(entry.path, behind / entry.name)  # noqa: PTH104
    shutil.copymode(path, behind)
    path.rmdir()


def _refuse_unserved(ref: DataRef) -> None:
    if ref.kind == "local" and not ref.fuse:
        return
    what = "mounted lazily (fuse=True)" if ref.kind == "local" else f"of the kind {ref.kind!r}"
    raise DataError(
        f"The data {ref.source!r} is {what}, which cannot be served by this runner yet.",
        hint="Pass a local file or folder, without fuse=True.",
    )
