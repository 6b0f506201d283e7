"""Package and upload a call: its project, its pickle and its data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kinetic.data import Data, to_ref
from kinetic.settings.home import stat_cache
from kinetic_payload.layout import JobObjects
from kinetic_payload.progress import TrackProgress, silent, size_text
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_payload.threads import Executor, parallel_map

if TYPE_CHECKING:
    from kinetic_payload.calls.dump import DumpedCall
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.project.roots import ProjectPlan
    from kinetic_payload.project.snapshot import Snapshot

Report = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Call:
    """The function that the user called, its arguments and its volumes."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    volumes: Mapping[str, Data]


@dataclass(frozen=True, kw_only=True)
class PackageOptions:
    """How a project is packaged."""

    home: Path
    """`KINETIC_HOME`."""
    store: Path | None = None
    """The store, if it is a folder."""
    cwd: Path
    user_home: Path
    root: str | None
    """`KINETIC_PACKAGE_ROOT`."""
    no_default_excludes: bool
    context_warn_mb: float
    payload_warn_mb: float
    kinetic_version: str
    this_machine: bool = True
    """Whether the function will run here, and can read local data in place."""

    @property
    def own(self) -> list[Path]:
        """Files of Kinetic that may lie inside a project or data, and are never shipped."""
        from kinetic.settings.keys import KeyFile

        # The key is listed by itself: a link may lead to it, but not to the home.
        return [self.home, KeyFile(self.home).path, *filter(None, [self.store])]


@dataclass(frozen=True)
class PackagedCall:
    """A call ready to be uploaded."""

    plan: ProjectPlan
    snapshot: Snapshot | None
    """None if no files are shipped."""
    call: DumpedCall
    retake: Callable[[], Snapshot | None]
    """Takes the snapshot again, for a project that has changed meanwhile."""


@dataclass(frozen=True)
class Uploaded:
    """A call whose objects are in the store."""

    payload_digest: str
    context_digest: str | None
    """None if no files are shipped."""
    data: tuple[DataRef, ...] = ()
    """The references that replaced the `Data` of the call, including volumes."""


def plan_of(call: Call, options: PackageOptions) -> ProjectPlan:
    """Decide which project the call belongs to, and its `sys.path` and working directory."""
    from kinetic_payload.project.roots import entry_of, plan_project

    return plan_project(
        entry_of(call.function),
        sys_path=sys.path,
        cwd=options.cwd,
        home=options.user_home,
        override=options.root,
    )


def package(
    call: Call,
    plan: ProjectPlan,
    options: PackageOptions,
    *,
    check: Callable[[Data], None],
    warn: Report,
    track: TrackProgress = silent,
) -> PackagedCall:
    """Pickle the call and take the project's snapshot, if there is a project. Nothing is uploaded.

    *check* refuses a `Data` that the backend cannot serve.

    Raises:
        PackagingError: The project cannot be read.
        PayloadError: Something in the call does not pickle; the message names it.
        DataError: A `Data` of the call does not exist.
    """
    from kinetic_payload.project.membership import Membership

    queried: set[Path] = set()
    membership = None
    if plan.root is not None:
        membership = Membership(plan.root, no_defaults=options.no_default_excludes)

    def ships(path: Path) -> bool:
        queried.add(path)
        return membership is not None and membership(path)

    dumped = _dump(call, plan, ships)
    try:
        given: list[Data] = [found.value for found in dumped.data]
        # In parallel: a check of a bucket is a request.
        parallel_map(check, given, threads=8 if any(data.is_gcs for data in given) else 1)
        local = [Path(data.path) for data in given if data.is_local]
        take = partial(_take_snapshot, plan, options, local, track)
        snapshot = take()
        if snapshot and any(ships(path) and not snapshot.contains(path) for path in list(queried)):
            # A module in the folder of a `Data` is not in the snapshot, so it cannot be pickled by reference.
            dumped.close()
            dumped = _dump(call, plan, snapshot.contains)
        for warning in (
            snapshot and snapshot.oversize_warning(options.context_warn_mb),
            dumped.oversize_warning(options.payload_warn_mb),
        ):
            if warning:
                warn(warning)
    except BaseException:
        dumped.close()
        raise
    return PackagedCall(plan, snapshot, dumped, take)


def _dump(call: Call, plan: ProjectPlan, ships: Callable[[Path], bool]) -> DumpedCall:
    from kinetic_payload.calls.dump import dump_call

    return dump_call(
        call.function,
        call.args,
        call.kwargs,
        plan=plan,
        ships=ships,
        data_type=Data,
        volumes=call.volumes,
    )


def _take_snapshot(
    plan: ProjectPlan, options: PackageOptions, data: Sequence[Path], track: TrackProgress
) -> Snapshot | None:
    from kinetic_payload.project.snapshot import take_snapshot

    if plan.root is None:
        return None
    return take_snapshot(
        plan.root,
        exclude=[*data, *options.own],
        no_defaults=options.no_default_excludes,
        cache=stat_cache(options.home, plan.root),
        track=track,
    )


def upload(
    packed: PackagedCall,
    store: Store,
    job_id: str,
    options: PackageOptions,
    *,
    report: Report,
    warn: Report = lambda _: None,
    track: TrackProgress = silent,
    writing: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Uploaded:
    """Upload what the store does not have yet.

    Over a network the project, each `Data` and the payload are uploaded in parallel. While an object
    that belongs to this job alone is written, the block `writing(name)` is entered.
    """
    found_data = packed.call.data
    with Executor(store.concurrency) as executor:
        uploader = _Uploader(packed, store, options, report, executor.checked(track))
        context = executor.submit(uploader.context)
        # The same data, as an argument and a volume for instance, is uploaded once.
        different = {_upload_key(found.value): found.value for found in found_data}
        sent = {
            key: executor.submit(partial(uploader.data, data)) for key, data in different.items()
        }
        refs = [
            to_ref(
                found.value,
                found.key,
                digest=sent[_upload_key(found.value)].result(),
                mount=found.mount,
                in_place=uploader.in_place(found.value),
            )
            for found in found_data
        ]
        for text in uploader.left_out:
            warn(text)
        assumed_digest = _digest(context.result() if context.done else packed.snapshot)
        name = JobObjects(job_id).payload
        with writing(name):
            digest = uploader.payload(name, refs, assumed_digest, if_generation=ABSENT)
        context_digest = _digest(context.result())
    if context_digest != assumed_digest:
        # A file changed while the project was uploaded, and the payload names the earlier digest.
        digest = uploader.payload(name, refs, context_digest)
    return Uploaded(digest, context_digest, tuple(refs))


def _digest(snapshot: Snapshot | None) -> str | None:
    return None if snapshot is None else snapshot.digest


@dataclass(frozen=True)
class _Uploader:
    """Uploads the parts of one call; they can run in parallel."""

    packed: PackagedCall
    store: Store
    options: PackageOptions
    report: Report
    track: TrackProgress
    left_out: list[str] = field(default_factory=list)
    """Warnings about files of the data that were left out."""

    def context(self) -> Snapshot | None:
        """Upload the project and return the uploaded snapshot: a later one if files changed."""
        from kinetic_payload.project.context import ensure_context

        packed = self.packed
        takes = iter((lambda: packed.snapshot, packed.retake, packed.retake))

        def send() -> Snapshot | None:
            snapshot = next(takes)()
            if snapshot is not None and ensure_context(self.store, snapshot, track=self.track):
                self.report(f"Uploaded {size_text(snapshot.size)} of {snapshot.root.name}/.")
            return snapshot

        return _retry_if_changed(send, tries=3)

    def in_place(self, data: Data) -> bool:
        """Return whether the worker reads *data* in place."""
        return data.is_local and data.fuse and self.options.this_machine

    def data(self, data: Data) -> str | None:
        """Upload a `Data` and return its digest; return None if it is not uploaded."""
        from kinetic_payload.data.upload import ensure_data
        from kinetic_payload.errors import TreeChangedError

        if not data.is_local or self.in_place(data):
            return None
        path = Path(data.path)
        send = partial(
            ensure_data,
            self.store,
            path,
            mounted=data.fuse,
            cache=stat_cache(self.options.home, path),
            track=self.track,
            warn=self.left_out.append,
            exclude=self.options.own,
        )
        try:
            return _retry_if_changed(send)
        except TreeChangedError as error:
            raise TreeChangedError(
                f"{data!r} cannot be uploaded: {error.message}",
                hint="Submit again when nothing writes to it any more.",
            ) from error

    def payload(
        self,
        name: str,
        refs: Sequence[DataRef],
        context_digest: str | None,
        *,
        if_generation: int | None = None,
    ) -> str:
        """Write the payload and return its digest."""
        with (
            self.track("uploading the call", self.packed.call.size) as advance,
            self.store.writer(name, if_generation=if_generation, progress=advance) as stream,
        ):
            return self.packed.call.write(
                stream,
                refs=refs,
                context_digest=context_digest,
                kinetic_version=self.options.kinetic_version,
            )


def _upload_key(data: Data) -> object:
    """Return a key that is equal for two `Data` if one upload is enough for both."""
    return data.path, data.fuse


def _retry_if_changed(send: Callable[[], T], tries: int = 3) -> T:
    """Call *send* and return its value; if files changed while it read them, call it again."""
    from kinetic_payload.errors import TreeChangedError

    try:
        return send()
    except TreeChangedError:
        if tries == 1:
            raise
    return _retry_if_changed(send, tries - 1)
