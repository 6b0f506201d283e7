"""Package and upload a call: its project, its pickle and its data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kinetic
from kinetic.data import Data, to_ref
from kinetic.jobs.missing_files import Project
from kinetic.settings.home import stat_cache
from kinetic.settings.settings import user_home, working_folder
from kinetic.user_warnings import warn_once
from kinetic_payload.layout import JobObjects
from kinetic_payload.process_settings import untravelled_settings
from kinetic_payload.progress import TrackProgress, size_text
from kinetic_payload.stores.store import ABSENT, Location, Store
from kinetic_payload.threads import Executor, Future, parallel_map

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic.submit.warnings import Notices
    from kinetic_payload.calls.dump import DumpedCall
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.project.roots import Entry, ProjectPlan
    from kinetic_payload.project.snapshot import Snapshot

Report = Callable[[str], None]
T = TypeVar("T")


class Packaging:
    """A call that is being packaged by another thread, which *executor* stops after a failure."""

    def __init__(
        self, plan: ProjectPlan, notices: Notices, executor: Executor | None = None
    ) -> None:
        self.plan = plan
        self.notices = notices
        self.snapshot: Future[Snapshot | None] = Future(executor)
        """The snapshot of the project. None: no files are shipped."""
        self.reads_buckets: Future[bool] = Future(executor)
        """Whether data of the call is in buckets."""
        self.checked: Future[None] = Future(executor)
        """Set when the dependencies of the project are known to be usable: until then, nothing is uploaded."""


class Package:
    """The call of a request: its project is planned at once, `pack` packages it, and `upload` uploads it.

    `close` it after `pack`.
    """

    def __init__(
        self,
        request: JobRequest,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        store: Store,
        notices: Notices,
        entry: Entry | None = None,
    ) -> None:
        from kinetic_payload.project.roots import entry_of, plan_project

        self.request = request
        self.plan = plan_project(
            entry or entry_of(function),
            # The first path is that of the program which runs now.
            sys_path=sys.path if entry is None else sys.path[1:],
            cwd=working_folder(),
            home=user_home(),
            override=request.settings.package_root.value,
        )
        """The project that the call belongs to, its `sys.path` and its working directory."""
        self.call: DumpedCall | None = None
        """The pickled call."""
        self.snapshot: Snapshot | None = None
        """The project as it is shipped; None if no files are."""
        self.payload_digest = ""
        """Set by `upload`, as the references to all `Data` of the call, volumes included."""
        self.refs: tuple[DataRef, ...] = ()
        self._call = function, tuple(args), kwargs
        self._store = store
        self._notices = notices
        self._home = Path(request.settings.home.value)
        self._own = own_files(self._home, store.location)

    @property
    def context_digest(self) -> str | None:
        """The digest of the snapshot; None if no files are shipped."""
        return None if self.snapshot is None else self.snapshot.digest

    @property
    def project(self) -> Project:
        """The project that was shipped, and what was left out of it."""
        left_out = self.snapshot.left_out if self.snapshot else ()
        return Project(self.plan.root, self.plan.cwd, left_out, self.request.image.uri)

    def close(self) -> None:
        """Remove temporary files."""
        if self.call is not None:
            self.call.close()
            self.call = None

    def pack(self, check: Callable[[Data], None]) -> Sequence[Data]:
        """Pickle the call and take the project's snapshot, if there is a project. Nothing is uploaded.

        Return the `Data` of the call, volumes included.

        *check* refuses a `Data` that the backend cannot serve.

        Raises:
            PackagingError: The project cannot be read.
            PayloadError: Something in the call does not pickle; the message names it.
            DataError: A `Data` of the call does not exist.
        """
        from kinetic_payload.project.snapshot import Membership

        settings = self.request.settings
        queried: set[Path] = set()
        membership = None
        if self.plan.root is not None:
            no_defaults = settings.no_default_excludes.value
            membership = Membership(self.plan.root, no_defaults=no_defaults)

        def ships(path: Path) -> bool:
            queried.add(path)
            return membership is not None and membership(path)

        call = self._dump(ships)
        given: list[Data] = [found.value for found in call.data]
        # In parallel: a check of a bucket is a request.
        parallel_map(check, given, threads=8 if any(data.is_gcs for data in given) else 1)
        self.snapshot = snapshot = self.take_snapshot()
        if snapshot and any(ships(path) and not snapshot.contains(path) for path in list(queried)):
            # A module in the folder of a `Data` is not in the snapshot, so it cannot be pickled by reference.
            call = self._dump(snapshot.contains)
        for warning in (
            snapshot and snapshot.oversize_warning(settings.context_size_warn_mb.value),
            call.oversize_warning(settings.payload_size_warn_mb.value),
            *call.warnings,
            *untravelled_settings(),
        ):
            if warning:
                self._notices.warn(warning)
        return given

    def pack_inputs(
        self, pack: Callable[[DumpedCall], object], check: Callable[[Data], None]
    ) -> Sequence[Data]:
        """Let *pack* pickle the inputs of a batch, and *check* the `Data` in them; return all `Data`."""
        assert self.call is not None
        known = len(self.call.data)
        pack(self.call)
        for found in self.call.data[known:]:
            check(found.value)
        return [found.value for found in self.call.data]

    def _dump(self, ships: Callable[[Path], bool]) -> DumpedCall:
        from kinetic_payload.calls.dump import dump_call

        self.close()
        self.call = dump_call(
            *self._call,
            plan=self.plan,
            ships=ships,
            data_type=Data,
            volumes=self.request.volumes,
        )
        return self.call

    def take_snapshot(self) -> Snapshot | None:
        """Return the project as it is now; None if no files are shipped."""
        assert self.call is not None
        data = [Path(found.value.path) for found in self.call.data if found.value.is_local]
        return snapshot_of(
            self.plan, self.request, exclude=[*data, *self._own], track=self._notices.track
        )

    def upload(
        self,
        job_id: str,
        writing: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Upload what the store does not have yet.

        Over a network the project, each `Data` and the payload are uploaded in parallel. While an object
        that belongs to this job alone is written, the block `writing(name)` is entered.
        """
        assert self.call is not None
        left_out: list[str] = []
        name = JobObjects(job_id).payload
        with Executor(self._store.concurrency) as executor:
            track = executor.checked(self._notices.track)
            context = executor.submit(partial(self._send_context, track))
            # The same data, as an argument and a volume for instance, is uploaded once.
            different = {_upload_key(found.value): found.value for found in self.call.data}
            sent = {
                key: executor.submit(partial(self._send_data, data, track, left_out.append))
                for key, data in different.items()
            }
            self.refs = tuple(
                to_ref(
                    found.value,
                    found.key,
                    digest=sent[_upload_key(found.value)].result(),
                    mount=found.mount,
                    in_place=self._in_place(found.value),
                )
                for found in self.call.data
            )
            warn_once(self._notices.warn, *left_out)
            assumed = self.context_digest
            with writing(name):
                self._send_payload(name, assumed, track, if_generation=ABSENT)
            context.result()
        if self.context_digest != assumed:
            # A file changed while the project was uploaded, and the payload names the earlier digest.
            self._send_payload(name, self.context_digest, track)

    def _send_context(self, track: TrackProgress) -> None:
        """Upload the project; if files change meanwhile, take a later snapshot."""
        from kinetic_payload.project.context import ensure_context

        snapshot = self.snapshot

        def send() -> None:
            nonlocal snapshot
            taken, snapshot = snapshot or self.take_snapshot(), None
            if taken is not None and (sent := ensure_context(self._store, taken, track=track)):
                self._notices.phase(f"Uploaded {size_text(sent)} of {taken.root.name}/.")
            self.snapshot = taken

        _retry_if_changed(send)

    def _in_place(self, data: Data) -> bool:
        """Return whether the worker reads *data* in place."""
        return data.is_local and data.fuse and self.request.on_this_machine

    def _send_data(self, data: Data, track: TrackProgress, warn: Report) -> str | None:
        """Upload a `Data` and return its digest; return None if it is not uploaded."""
        from kinetic_payload.data.upload import ensure_data
        from kinetic_payload.errors import TreeChangedError

        if not data.is_local or self._in_place(data):
            return None
        path = Path(data.path)
        send = partial(
            ensure_data,
            self._store,
            path,
            mounted=data.fuse,
            cache=stat_cache(self._home, path),
            track=track,
            warn=warn,
            exclude=self._own,
        )
        try:
            return _retry_if_changed(send)
        except TreeChangedError as error:
            raise TreeChangedError(
                f"{data!r} cannot be uploaded: {error.message}",
                hint="Submit again when nothing writes to it any more.",
            ) from error

    def _send_payload(
        self,
        name: str,
        context_digest: str | None,
        track: TrackProgress,
        *,
        if_generation: int | None = None,
    ) -> None:
        assert self.call is not None
        with (
            track("uploading the call", self.call.size) as advance,
            self._store.writer(name, if_generation=if_generation, progress=advance) as stream,
        ):
            self.payload_digest = self.call.write(
                stream,
                refs=self.refs,
                context_digest=context_digest,
                kinetic_version=kinetic.__version__,
            )


def own_files(home: Path, store: Location) -> list[Path]:
    """Return files of Kinetic that may lie inside a project or data, and are never shipped."""
    from kinetic.settings.keys import KeyFile

    # The key is listed by itself: a link may lead to it, but not to the home.
    folders = [Path(store.path)] if store.kind == "folder" else []
    return [home, KeyFile(home).path, *folders]


def snapshot_of(
    plan: ProjectPlan, request: JobRequest, *, exclude: Sequence[Path], track: TrackProgress
) -> Snapshot | None:
    """Return the project of *plan* as it is now, without *exclude*; None if no files are shipped."""
    from kinetic_payload.project.snapshot import take_snapshot

    if plan.root is None:
        return None
    settings = request.settings
    return take_snapshot(
        plan.root,
        exclude=exclude,
        no_defaults=settings.no_default_excludes.value,
        cache=stat_cache(Path(settings.home.value), plan.root),
        track=track,
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
