"""Package a call: the project as a snapshot, the function and its arguments as a pickle, its data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kinetic.caches import stat_cache
from kinetic.data import Data, to_ref
from kinetic_payload.layout import JobObjects
from kinetic_payload.store import ABSENT, Store

if TYPE_CHECKING:
    from kinetic_payload.calls import DumpedCall
    from kinetic_payload.roots import ProjectPlan
    from kinetic_payload.snapshot import Snapshot

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the user called, and the volumes that go with it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    volumes: Mapping[str, Data]


@dataclass(frozen=True, kw_only=True)
class PackingOptions:
    """What decides how a project is packaged."""

    home: Path
    """`KINETIC_HOME`."""
    store: Path | None = None
    """The folder of the jobs' objects, if it is one."""
    cwd: Path
    user_home: Path
    root: str | None
    """`KINETIC_PACKAGE_ROOT`."""
    no_default_excludes: bool
    context_warn_mb: float
    payload_warn_mb: float
    kinetic_version: str


@dataclass(frozen=True)
class Packed:
    """A call ready to be uploaded."""

    plan: ProjectPlan
    snapshot: Snapshot
    call: DumpedCall
    retake: Callable[[], Snapshot]
    """Takes the snapshot again, for when the project changed since."""


def plan_of(call: Call, options: PackingOptions) -> ProjectPlan:
    """Decide which project the call belongs to, and what its `sys.path` and folder were."""
    from kinetic_payload.roots import entry_of, plan_project

    return plan_project(
        entry_of(call.function),
        sys_path=sys.path,
        cwd=options.cwd,
        home=options.user_home,
        override=options.root,
    )


def pack(
    call: Call,
    plan: ProjectPlan,
    options: PackingOptions,
    *,
    check: Callable[[Data], None],
    warn: Say,
) -> Packed:
    """Pickle the call and take the project's snapshot. Nothing is uploaded.

    *check* refuses a `Data` that the backend cannot serve.

    Raises:
        PackagingError: The project cannot be read.
        PayloadError: Something in the call does not pickle; the message names it.
        DataError: A `Data` of the call is not there.
    """
    from kinetic_payload.calls import dump_call
    from kinetic_payload.shipping import Shipping
    from kinetic_payload.snapshot import take_snapshot

    asked: set[Path] = set()
    shipping = Shipping(plan.root, no_defaults=options.no_default_excludes)

    def ships(path: Path) -> bool:
        asked.add(path)
        return shipping(path)

    def dump(ships: Callable[[Path], bool]) -> DumpedCall:
        return dump_call(
            call.function,
            call.args,
            call.kwargs,
            plan=plan,
            ships=ships,
            data_type=Data,
            volumes=call.volumes,
        )

    dumped = dump(ships)
    try:
        local = []
        for found in dumped.data:
            check(found.value)
            if not (found.value.is_gcs or found.value.is_hf):
                local.append(Path(found.value.path))

        def take() -> Snapshot:
            return take_snapshot(
                plan.root,
                # Home and store may lie in the project; what jobs keep there is no part of it.
                exclude=[*local, options.home, *filter(None, [options.store])],
                no_defaults=options.no_default_excludes,
                cache=stat_cache(options.home, plan.root),
            )

        snapshot = take()
        if any(shipping(path) and not snapshot.contains(path) for path in asked):
            # A module lies inside a `Data` and so outside the snapshot: it cannot go by reference.
            dumped.close()
            dumped = dump(snapshot.contains)
        for warning in (
            snapshot.oversize_warning(options.context_warn_mb),
            dumped.oversize_warning(options.payload_warn_mb),
        ):
            if warning:
                warn(warning)
    except BaseException:
        dumped.close()
        raise
    return Packed(plan, snapshot, dumped, take)


def upload(
    packed: Packed, store: Store, job_id: str, options: PackingOptions, *, say: Say
) -> tuple[str, str]:
    """Upload what the store does not have yet; return the digests of the payload and the context."""
    from kinetic_payload.data_upload import ensure_data

    refs = []
    for found in packed.call.data:
        digest = None
        if not (found.value.is_gcs or found.value.is_hf):
            path = Path(found.value.path)
            send = partial(ensure_data, store, path, cache=stat_cache(options.home, path))
            digest = _settled(send)
        refs.append(to_ref(found.value, found.key, digest=digest, mount=found.mount))
    snapshot = _upload_context(packed, store, say=say)
    name = JobObjects(job_id).payload
    with store.writer(name, if_generation=ABSENT) as stream:
        digest = packed.call.write(
            stream,
            refs=refs,
            context_digest=snapshot.digest,
            kinetic_version=options.kinetic_version,
        )
    return digest, snapshot.digest


def _upload_context(packed: Packed, store: Store, *, say: Say) -> Snapshot:
    """Upload the project and return the snapshot that went up: a later one if files changed."""
    from kinetic_payload.transfer import ensure_context

    takes = iter((lambda: packed.snapshot, packed.retake, packed.retake))

    def send() -> Snapshot:
        snapshot = next(takes)()
        if ensure_context(store, snapshot):
            say(f"Uploaded {snapshot.size / 1e6:.1f} MB of {packed.plan.root.name}/.")
        return snapshot

    return _settled(send, tries=3)


def _settled(send: Callable[[], T], tries: int = 3) -> T:
    """Return what *send* gives; where files change while it reads them, call it again."""
    from kinetic_payload.errors import TreeChangedError

    try:
        return send()
    except TreeChangedError:
        if tries == 1:
            raise
    return _settled(send, tries - 1)
