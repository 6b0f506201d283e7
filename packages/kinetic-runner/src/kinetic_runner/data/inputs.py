"""Provide a call's data at the paths that the function gets: copied, mounted or shown in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import DataError, KineticError
from kinetic_payload.files.private import make_folder
from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import Executor
from kinetic_runner.data.progress import TransferProgress
from kinetic_runner.data.reused_files import EarlierFiles
from kinetic_runner.workspace import Workspace, disk_words

Download = Callable[[Store, DataRef, Path, TrackProgress], object]

_THREADS: Final = 4


class Plan(NamedTuple):
    """Where all data go, decided before anything is downloaded."""

    paths: Mapping[str, str]
    """The path that the function sees, by key."""
    downloads: tuple[Transfer, ...]
    binds: Mapping[str, Path]
    """Path → the folder or file shown there in a private view of the file system, in this order."""
    views: tuple[View, ...] = ()
    """Data of this machine that are shown in place, not copied."""
    mounted: tuple[DataRef, ...] = ()
    """Data that were mounted before the runner started."""

    @property
    def read_only(self) -> frozenset[str]:
        """The paths of *binds* that are read-only."""
        stages = {str(view.stage) for view in self.views}
        return frozenset(stages.union(view.mount for view in self.views if view.mount is not None))


class View(NamedTuple):
    """A file or folder of this machine that the function sees read-only."""

    source: Path
    stage: Path
    """A path in the workspace. *source* is bound here first, because a volume may cover its own path."""
    mount: str | None
    """The path at which *stage*, or the folder that holds it, is bound then; None if it is not."""


class Transfer(NamedTuple):
    """One transfer. References to the same data share it, unless they are mounted."""

    ref: DataRef
    path: Path
    behind: Path | None = None
    """The folder behind a private mount, into which the data are moved."""


def plan(refs: Sequence[DataRef], workspace: Workspace, *, private_mounts: bool) -> Plan:
    """Decide where the data of *refs* go; change nothing."""
    paths: dict[str, str] = {}
    downloads: list[Transfer] = []
    views: list[View] = []
    volumes: dict[str, Path] = {}
    mounted: list[DataRef] = []
    shared: dict[object, Path] = {}
    for ref in refs:
        local = Path(ref.local_path) if ref.fuse and ref.local_path is not None else None
        at = ref.mounted_at if ref.fuse and local is None else ref.mount
        # A file lands in the folder that is mounted, under its own name.
        if at is not None:
            paths[ref.key] = at if ref.is_dir else f"{at}/{ref.name}"
        own = workspace.data(ref.key, ref.name)
        if ref.fuse and local is None:
            mounted.append(ref)
        elif ref.mount is None:
            # References that are equal in this can share a copy.
            what = ref.digest if ref.kind == "local" else ref.source
            same = (ref.kind, what, ref.name, ref.is_dir, ref.trust_remote_code)
            known = shared.setdefault(local or same, own)
            paths[ref.key] = str(known)
            if known is own and local is not None:
                views.append(View(local, own, None))
            elif known is own:
                downloads.append(Transfer(ref, own))
        elif local is not None:
            behind = volumes[ref.mount] = workspace.mount(ref.key)
            views.append(View(local, behind if ref.is_dir else behind / ref.name, ref.mount))
        elif private_mounts:
            behind = volumes[ref.mount] = workspace.mount(ref.key)
            downloads.append(Transfer(ref, own, behind))
        else:
            downloads.append(Transfer(ref, Path(paths[ref.key])))
    # Volumes last: they may cover the others.
    binds = {**{str(view.stage): view.source for view in views}, **volumes}
    return Plan(paths, tuple(downloads), binds, tuple(views), tuple(mounted))


def make_mount_points(decided: Plan) -> None:
    """Make the empty folders and files that private mounts show until their data are there."""
    for transfer in decided.downloads:
        if transfer.behind is not None:
            make_folder(transfer.behind.parent)
            transfer.behind.mkdir()
    for view in decided.views:
        if not view.source.exists():
            raise DataError(
                f"{view.source} does not exist any more, or cannot be reached from here.",
                hint="With fuse=True local data is used in place: keep it until the job ends.",
            )
        make_folder(view.stage.parent)
        if view.source.is_dir():
            view.stage.mkdir()
        else:
            view.stage.touch()


def provide(
    decided: Plan,
    store: Store,
    earlier: EarlierFiles | None = None,
    *,
    download: Download | None = None,
) -> None:
    """Download all data of a plan, several items at a time, and check that mounted data are there.

    Data that were uploaded are in *store*; other data come directly from their source. Data that an *earlier*
    attempt downloaded are reused if they are unchanged. *download* downloads one item: whole, or not at all.

    Raises:
        DataError: An item could not be downloaded; the message names it and its path.
    """
    for ref in decided.mounted:
        at, words = Path(decided.paths[ref.key]), "nothing is there"
        try:
            found = at.is_dir() if ref.is_dir else at.is_file()
        except OSError as error:
            found, words = False, str(error.strerror)
        if not found:
            raise DataError(
                f"The data {ref.source!r} should be mounted at {at}, but {words}.",
                hint="See the events of the pod for the reason; the nodes' account must be allowed to read it.",
            )
    progress = TransferProgress("downloading data")

    def provide_one(transfer: Transfer) -> None:
        ref, path, behind = transfer
        try:
            make_folder(path.parent)
            was_at = path
            if behind is not None:
                was_at = behind if ref.is_dir else behind / path.name
            if earlier is None or not earlier.take_data(ref, path, was_at=was_at):
                (download or _download)(store, ref, path, progress)
            if behind is not None:
                _fill(behind, path, is_dir=ref.is_dir)
        except Exception as error:
            words = disk_words(error, path) or getattr(error, "message", None) or str(error)
            what = f"The data {ref.source!r}"
            if words.startswith(what):
                words = f"it{words.removeprefix(what)}"
            raise DataError(
                f"{what} could not be downloaded to {ref.mount or path}: {words}",
                hint=error.hint if isinstance(error, KineticError) else None,
            ) from error

    # At least two threads: the main one stays free for a stop, which does not wait for a download, nor does a failure.
    with Executor(max(2, min(_THREADS, len(decided.downloads))), grace=0.0) as executor:
        pending = [executor.submit(partial(provide_one, one)) for one in decided.downloads]
        for each in pending:
            each.result()
    progress.finish()


def _download(store: Store, ref: DataRef, dest: Path, track: TrackProgress) -> None:
    # Most calls have no data, or data of one kind.
    if ref.kind == "local":
        from kinetic_payload.data.download import download_data

        copies = store.location.kind == "folder"  # On this machine: nobody waits for a network.
        download_data(store, ref, dest, track=silent if copies else track)
    elif ref.kind == "gcs":
        from kinetic_payload.data import bucket as bucket_data
        from kinetic_payload.data.sources import parse_gcs

        source = parse_gcs(ref.source)
        bucket_data.download(bucket_data.open_bucket(source), source, dest, track=track)
    else:
        from kinetic_runner.data import huggingface

        huggingface.load(ref.source, dest, trusts=ref.trust_remote_code)


def _fill(behind: Path, path: Path, *, is_dir: bool) -> None:
    """Move the data at *path* into the folder that is mounted already: a mount shows an inode, not a name."""
    import shutil

    if not is_dir:
        os.rename(path, behind / path.name)  # noqa: PTH104
        return
    for entry in os.scandir(path):
        os.rename(entry.path, behind / entry.name)  # noqa: PTH104
    shutil.copymode(path, behind)
    path.rmdir()
