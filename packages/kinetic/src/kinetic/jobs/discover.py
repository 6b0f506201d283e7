"""Find jobs: `attach` returns one by its id, `list_jobs` returns all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from kinetic.backends.registry import CLUSTER, LOCAL, asked_for, entry_of
from kinetic.errors import ConfigurationError, JobNotFoundError
from kinetic.home.paths import Home
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import unreported_attempts
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.jobs.outcome import JobOutcome, status_of
from kinetic.jobs.records import (
    StoredRecord,
    find_manifest,
    find_outcome,
    find_record,
    find_summary,
    listed_outcome,
    read_reports,
)
from kinetic.jobs.services import (
    cluster_location,
    connect,
    jobs_location,
    local_store_location,
    look_limit,
    open_at,
)
from kinetic.names import Selection
from kinetic.target import Target, is_in_pod
from kinetic_payload.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    KineticError,
    RecordError,
    SignatureError,
    StoreError,
    StoreUnavailableError,
    UnavailableError,
)
from kinetic_payload.layout import GROUPS, LOGS, JobObjects, is_group_id, is_job_id
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.folder.marking import refuse_foreign_folder
from kinetic_payload.stores.store import Location, ObjectInfo, Store
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.attempts import Verify
    from kinetic.jobs.report import Report
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.usage import PendingReason, Usage
    from kinetic_payload.stores.outages import OutageLimit

T = TypeVar("T")
log = logging.getLogger("kinetic")

LIST_JOBS: Final = "To list all jobs: kinetic jobs list"
ALL_JOBS: Final = Selection()
LOG_LINES: Final = 40
"""Lines of the log in a report."""
LIST_BATCHES: Final = "To list all batches: kinetic batches list"


def attach(job_id: str, project: str | None = None, cluster: str | None = None) -> JobHandle:
    """Return the handle of a job that any process submitted.

    It looks in the local store first, without any network; then in `KINETIC_STORE`; then in the bucket of
    the cluster, if a project is known.

    Args:
        job_id: The job's identifier.
        project: GCP project; falls back to KINETIC_PROJECT, the active profile, then
            GOOGLE_CLOUD_PROJECT.
        cluster: GKE cluster; falls back to KINETIC_CLUSTER, the active profile, then the default.

    Raises:
        JobNotFoundError: None of the stores has the job; the message names them all.
        StoreUnavailableError: One of them could not be reached, and the others do not have the job.
    """
    from kinetic.settings.settings import Settings

    return _find_job(job_id, Settings.from_environment(project=project, cluster=cluster))


def find_job(job_id: str, settings: Settings) -> JobHandle:
    """Return the handle of a job, as `attach` does; the handle keeps *settings*."""
    handle = _find_job(job_id, settings)
    handle._session.settings = settings
    return handle


def _find_job(job_id: str, settings: Settings) -> JobHandle:
    if is_group_id(job_id):
        raise InvalidRequestError(
            f"{job_id!r} is the id of a batch, not of a job.",
            hint=f"Show the batch with: kinetic batches status {job_id}",
        )
    if not is_job_id(job_id):
        raise InvalidRequestError(f"{job_id!r} is not a job id.", hint=LIST_JOBS)
    store, found = _find(job_id, settings, lambda store: find_record(store, job_id))
    return _handle_from(store, found)


def find_batch(group_id: str, settings: Settings) -> tuple[Store, StoredRecord[GroupManifest]]:
    """Return the store and the manifest of a batch.

    Raises:
        JobNotFoundError: None of the stores has it; the message names them all.
    """
    if not is_group_id(group_id):
        raise InvalidRequestError(f"{group_id!r} is not the id of a batch.", hint=LIST_BATCHES)
    return _find(group_id, settings, lambda store: find_manifest(store, group_id))


def _find(job_id: str, settings: Settings, find: Callable[[Store], T | None]) -> tuple[Store, T]:
    """Return what *find* finds in one of the stores of the *settings*, and that store."""
    limit = look_limit()
    looked: list[str] = []
    stores: list[Store] = []
    hint, kind = None, "batch" if is_group_id(job_id) else "job"
    unavailable: StoreUnavailableError | None = None
    for title, location in _places(settings):
        seen = "not there yet"
        try:
            store = open_existing(location, limit)
            if store is not None:
                stores.append(store)
                if (found := find(store)) is not None:
                    return store, found
                seen = f"no such {kind}"
        except StoreError as refusal:
            seen, hint = refusal.message, refusal.hint
            if isinstance(refusal, StoreUnavailableError):
                unavailable = unavailable or refusal
        looked.append(f"{title} ({location}): {seen}")
    if unavailable is not None:
        raise unavailable  # The job may be there.
    hint = hint or (LIST_JOBS if kind == "job" else LIST_BATCHES)
    from kinetic.jobs.stored_logs import stored_attempts

    with suppress(StoreError):
        if any(stored_attempts(store, job_id) for store in stores):
            hint = f"It was cleaned up. Its log is kept: kinetic jobs logs {job_id}"
    raise JobNotFoundError(
        f"There is no {kind} {job_id!r}. Looked in:\n  " + "\n  ".join(looked),
        hint=hint,
        job_id=job_id,
    )


def complete_id(text: str, settings: Settings, *, batch: bool = False) -> str:
    """Return the id of the only job, or *batch*, that *text* is the beginning of, or the hexadecimal digits at the end.

    A whole id costs no request, and ids of the inputs of batches are given whole. Jobs that were cleaned up, of
    which the log is kept, count if there is no other.

    Raises:
        JobNotFoundError: There is none.
        InvalidRequestError: There are several; the message has them.
        StoreUnavailableError: A store cannot be reached, so whether there are several is not known.
    """
    kind, is_whole = ("batch", is_group_id) if batch else ("job", is_job_id)
    if is_job_id(text) or is_group_id(text):
        return text
    limit = look_limit()

    def matching(prefix: str) -> list[str]:
        found: set[str] = set()
        for _, location in _places(settings):
            try:
                store = open_existing(location, limit)
                folders = store.folders(prefix) if store is not None else ()
                names = (folder.removeprefix(prefix)[:-1] for folder in folders)
                found.update(
                    name
                    for name in names
                    if is_whole(name) and (name.startswith(text) or name.rpartition("-")[2] == text)
                )
            except StoreUnavailableError as error:
                error.hint = f"Without it, {text!r} may stand for several: give the whole id."
                raise
            except StoreError:
                continue  # What cannot be read cannot be meant.
        return sorted(found)

    # An empty text, which all begin with, is a variable of a shell that is not set.
    places = () if not text else (GROUPS,) if batch else ("", LOGS)
    found = next(filter(None, map(matching, places)), [])
    if len(found) > 1:
        shown = "\n  ".join(found[:_CANDIDATES])
        more = f"\n  and {len(found) - _CANDIDATES} more" if len(found) > _CANDIDATES else ""
        raise InvalidRequestError(
            f"{text!r} stands for {len(found)} {kind}{'e' * batch}s:\n  {shown}{more}",
            hint="Give more of the id, or the digits at its end.",
        )
    if not found:
        raise JobNotFoundError(
            f"There is no {kind} whose id begins with {text!r}, or ends with it.",
            hint=LIST_BATCHES if batch else LIST_JOBS,
        )
    return found[0]


_CANDIDATES: Final = 10


def find_report(job_id: str, settings: Settings, *, lines: int = LOG_LINES) -> Report:
    """Return the report of a job, from its store alone: neither its cluster nor its key is needed.

    It has the last *lines* of the log. Nothing is unpickled, and no signature is checked.

    Raises:
        JobNotFoundError: None of the stores has anything of it.
    """
    from kinetic.jobs.status import worded
    from kinetic.jobs.stored_logs import stored_attempts, stored_lines

    def find(store: Store) -> tuple[JobRecord, JobOutcome, list[str]] | None:
        verify = UNSIGNED.verify
        kept = find_record(store, job_id)
        if kept is None:
            if (summary := find_summary(store, job_id, verify)) is None:
                return None
            last = summary.record.outcome
            hosts = (last.report,) if last.report else ()
            note = "It was cleaned up: only the host that decided is known."
            known = JobOutcome(job_id, status_of(last), "", last, hosts)
            return summary.record.record, known, [note]
        record = kept.record
        ended = find_outcome(store, job_id)
        final = ended.record if ended else None
        reports = read_reports(store, job_id, verify)
        silent = unreported_attempts(store, record, verify, {each.attempt for each in reports})
        status = JobStatus.RUNNING if reports or silent else JobStatus.PENDING
        notes = ["The store has no outcome. Whether it still runs: kinetic jobs status"]
        if final is not None:
            status, notes = status_of(final), []
        return record, JobOutcome(job_id, status, "", final, reports, silent), notes

    store, (record, outcome, notes) = _find(job_id, settings, find)
    log_end: list[LogLine] = []
    for attempt in stored_attempts(store, job_id)[-1:]:
        log_end = [*stored_lines(store, job_id, attempt, tail=lines, most=record.hosts)]
    if store.location.kind == "gs":
        notes.append("Signatures of the records were not checked.")
    return _report(store, record, worded(record, outcome), log_end, notes, UNSIGNED.verify)


def live_report(job: JobHandle) -> Report:
    """Return the report of *job* as its backend shows it now, without its log, which `log_lines` follows.

    Raises:
        SignatureError: The record or the outcome, in a bucket, is not signed with your key.
    """
    services = job._services
    return _report(services.store, job._record, job.outcome(), (), (), services.verify)


def _report(
    store: Store,
    record: JobRecord,
    outcome: JobOutcome,
    log: Sequence[LogLine],
    notes: Sequence[str],
    verify: Verify,
) -> Report:
    """Return the report of a job with what is stored beside its log, which anybody may have written."""
    from kinetic.jobs.pending import read_reasons
    from kinetic.jobs.report import report_of
    from kinetic.jobs.usage import job_usage
    from kinetic.settings.settings import environment

    pending: Sequence[PendingReason] = ()
    try:
        pending = read_reasons(store, record.job_id)
    except RecordError as error:
        notes = (*notes, f"Why it waited is not known: {error.message}")
    usage: dict[int, Usage] = {}
    with suppress(RecordError):
        usage = job_usage(store, record, verify)
    return report_of(
        record,
        outcome,
        log,
        usage,
        pending=pending,
        notes=notes,
        secrets=environment(),
        home=str(Path.home()),
        now=time.time(),
    )


def kept_log(
    job_id: str,
    settings: Settings,
    *,
    tail: int | None = None,
    attempt: int | Literal["all"] | None = None,
) -> Iterator[LogLine] | None:
    """Return the stored log of a job that was cleaned up, as `JobHandle.log_lines` does.

    None if no log is stored.
    """
    from kinetic.jobs.log_lines import separator
    from kinetic.jobs.logs import lines_of_attempts
    from kinetic.jobs.stored_logs import stored_attempts, stored_lines
    from kinetic.log_parts import joined

    for _, location in _places(settings):
        with suppress(StoreError):  # Then there is no log to show.
            store = open_existing(location)
            if store is not None and (known := stored_attempts(store, job_id)):
                lines_of = partial(stored_lines, store, job_id, tail=tail)
                wanted = known[-1] if attempt is None else attempt
                return joined(lines_of_attempts(job_id, known, wanted, lines_of, separator))
    return None


def _places(settings: Settings) -> Iterator[tuple[str, Location]]:
    """Iterate over the stores in which a job may be found, each with its name in messages."""
    local = local_store_location(Path(settings.home.value))
    yield "the local store", local
    seen = [local]
    if settings.store.value:
        seen.append(jobs_location(settings, LOCAL))
        if seen[1] != local:
            yield "KINETIC_STORE", seen[1]
    if settings.project.value:
        bucket = cluster_location(settings)
        if bucket not in seen:
            yield "the bucket of the cluster", bucket


def list_jobs(
    project: str | None = None,
    zone: str | None = None,
    cluster: str | None = None,
    namespace: str | None = None,
) -> list[JobHandle]:
    """Return all jobs, newest first; the inputs of batches are not among them.

    If the settings name a backend, only its jobs are returned. Otherwise, the jobs of this machine are
    returned, and those of the cluster if a project or a context is set. If the settings name a namespace, the
    cluster's jobs in other namespaces are left out. A job whose record cannot be read is skipped with a
    warning.

    Args:
        project: GCP project; like the others it falls back to KINETIC_*, then the active profile.
        zone: GCP zone.
        cluster: GKE cluster.
        namespace: Kubernetes namespace.

    Raises:
        InvalidRequestError: The settings resolve to a backend that this version cannot reach.
        StorePermissionError: The records may not be read.
        StoreError: The folder that is named as the store contains other files.
    """
    from kinetic.settings.settings import Settings

    return find_jobs(
        Settings.from_environment(project=project, zone=zone, cluster=cluster, namespace=namespace)
    )


def find_jobs(
    settings: Settings,
    *,
    also: Callable[[str, Settings], object] = lambda *_: None,
    selection: Selection = ALL_JOBS,
    ended: Mapping[str, JobHandle] = MappingProxyType({}),
) -> list[JobHandle]:
    """Return all jobs of *selection*, as `list_jobs` does; the handles keep *settings*.

    *also* is called with each backend, after its jobs were found. *ended* are jobs, by id, that an earlier list showed
    with their outcomes, which do not change: while a store still has one of them, nothing of it is read again.
    """

    def find(backend: str, settings: Settings) -> list[JobHandle]:
        jobs = _jobs_of(backend, settings, selection, ended)
        also(backend, settings)
        return jobs

    here, *others = of_backends(settings, find)
    # A store that KINETIC_STORE names may be that of both. Take each job from the list that connected it.
    connected_here = {job.job_id for job in here if job._session.services}
    found = [job for jobs in others for job in jobs if job.job_id not in connected_here]
    jobs = {job.job_id: job for job in [*here, *found]}
    for job in jobs.values():
        job._session.settings = settings
    return sorted(jobs.values(), key=lambda job: job.created_at, reverse=True)


def of_backends(settings: Settings, find: Callable[[str, Settings], list[T]]) -> list[list[T]]:
    """Return what *find* finds for the backend of the *settings*; else for this machine, then for the cluster."""
    from kinetic.settings.settings import environment

    backend = settings.backend.value
    if backend is not None:
        return [find(asked_for(backend, settings.backend.source).name, settings)]
    here = find(LOCAL, settings)
    if not (Target.in_settings(settings).named or is_in_pod(environment())):
        return [here]
    try:
        return [here, find(CLUSTER, settings)]
    except KineticError as error:
        # A project is often set for other reasons than a cluster with Kinetic jobs.
        other_reasons = settings.project.source == "GOOGLE_CLOUD_PROJECT"
        none = isinstance(error, InvalidRequestError | BucketNotFoundError) or (
            other_reasons and not isinstance(error, UnavailableError)
        )
        level = logging.INFO if none else logging.WARNING
        log.log(level, "The jobs of the cluster are left out: %s", error.message)
        return [here]


def _jobs_of(
    backend: str, settings: Settings, selection: Selection, known: Mapping[str, JobHandle]
) -> list[JobHandle]:
    """Return the jobs of *selection* whose records are in the store of *backend*, newest first."""
    location = jobs_location(settings, backend)
    if not _may_exist(location):
        return []
    recorded: set[str] = set()
    # All handles share these services; otherwise each would connect by itself.
    target = Target.in_settings(settings)
    services = connect(backend, target, location, settings)
    brief = services.limited(look_limit())
    if not settings.namespace.is_default:  # An id does not tell the namespace.
        selection = replace(selection, newest=None)
    jobs = jobs_in(
        brief.store, recorded=recorded.add, verify=services.verify, selection=selection, ended=known
    )
    entry = entry_of(backend)
    for job in jobs:
        same = entry_of(job.backend).module == entry.module
        if same and (entry.on_this_machine or Target.of(job._record).is_same_place(target)):
            job._session.services = services
    ended = [
        job._record
        for job in jobs
        if job._session.listed not in (None, "no outcome")
        and not (job._session.cleaned_up or job.job_id in known)
    ]
    brief.backend.tidy(ended, recorded=recorded)
    from kinetic.home.collection import collect_left
    from kinetic.settings.settings import environment

    collect_left(Home(settings.home.value), brief.store, recorded, environment())
    if settings.namespace.is_default:
        return jobs
    return [
        job
        for job in jobs
        if job.namespace == target.namespace or entry_of(job.backend).on_this_machine
    ]


def jobs_in(
    store: Store,
    *,
    recorded: Callable[[str], object] = lambda _: None,
    verify: Callable[[bytes, str], None] = UNSIGNED.verify,
    selection: Selection = ALL_JOBS,
    ended: Mapping[str, JobHandle] = MappingProxyType({}),
) -> list[JobHandle]:
    """Return the jobs of *selection* whose records are in *store*, newest first.

    One listing of the store shows most records and outcomes. `statuses_of` makes no request for a job
    whose outcome was shown. Records that are not shown are read one by one.

    *recorded* is called with the id of each job that has a record.
    """
    handles: list[JobHandle | None] = []
    unread: list[tuple[str, _Shown]] = []
    handle_of_job = partial(_listed_handle, store, verify)
    known: set[str] = set()
    chosen: set[str] = set()
    for job_id, record, outcome in _listed(store):
        recorded(job_id)
        known.add(job_id)
        if not selection.of([job_id]):
            continue
        chosen.add(job_id)
        before = ended.get(job_id)
        if before and before._session.final and before.bucket_name == str(store.location):
            before._session.listed = status_of(before._session.final)
            handles.append(before)
        elif record is None:
            unread.append((job_id, outcome))
        else:
            handles.append(handle_of_job(job_id, outcome, record))
    kept: list[tuple[str, bytes | None]] = []
    if selection.cleaned_up:
        for folder, _, summary in _listed(store, LOGS):
            if folder not in known and selection.of([folder]):
                kept.append((folder, summary if isinstance(summary, bytes) else None))
                chosen.add(folder)
    chosen = selection.of(chosen)
    unread = [job for job in unread if job[0] in chosen]
    kept = [job for job in kept if job[0] in chosen]
    handles = [job for job in handles if job is not None and job.job_id in chosen]
    handles += parallel_map(lambda job: handle_of_job(*job), unread, threads=store.concurrency)
    summary_of = partial(_cleaned_up_handle, store, verify)
    handles += parallel_map(lambda job: summary_of(*job), kept, threads=store.concurrency)
    found = sorted((job for job in handles if job is not None), key=lambda job: job.job_id)
    return sorted(found, key=lambda job: job.created_at, reverse=True)


def statuses_of(jobs: Sequence[JobHandle]) -> list[JobStatus | KineticError]:
    """Return, in the order of *jobs*, the status of each, or the error with which its status failed.

    An outcome that the listing of the jobs showed is used once, without a request. Jobs that wait or run
    are found in the lists of their backends. Each other job takes a request; over a bucket, several are
    made in parallel.
    """
    undecided = [job for job in jobs if job._session.listed == "no outcome"]
    shown = [job._session.listed for job in jobs]
    for job in jobs:
        job._session.listed = None
    listed = [None if seen == "no outcome" else seen for seen in shown]
    others = [job for job, seen in zip(jobs, listed, strict=True) if seen is None]
    limit = look_limit()
    active = _active_statuses(undecided, limit)

    def status(job: JobHandle) -> JobStatus | KineticError:
        try:
            if job.job_id in active:
                job._verify()
                return active[job.job_id]
            return job._status(limit)
        except KineticError as error:
            return error

    remote = any(job.bucket_name.startswith("gs://") for job in others)
    found = iter(parallel_map(status, others, threads=_PARALLEL_REQUESTS if remote else 1))
    return [next(found) if seen is None else seen for seen in listed]


def _active_statuses(jobs: Sequence[JobHandle], limit: OutageLimit) -> dict[str, JobStatus]:
    """Return, by id, the status of those of *jobs* that wait or run, from their backends' lists."""
    wanted: dict[int, tuple[Services, set[str]]] = {}
    for job in jobs:
        services = job._session.services
        if services is not None:
            wanted.setdefault(id(services), (services, set()))[1].add(job.job_id)
    found: dict[str, JobStatus] = {}
    for services, ids in wanted.values():
        # If a list fails, `job.status()` is called for each job, and raises its own error.
        with suppress(KineticError):
            for listed in services.backend.limited(limit).list():
                if listed.job_id in ids and listed.observation.active:
                    found[listed.job_id] = listed.observation.status
                ids.discard(listed.job_id)
                if not ids:
                    break
    return found


_PARALLEL_REQUESTS = 16


_Shown = bytes | None | Literal["no outcome"]
"""The outcome of a job in a list of a store; None if the list does not show its contents."""


def _listed(store: Store, prefix: str = "") -> Iterator[tuple[str, bytes | None, _Shown]]:
    """Iterate over the ids of jobs that have a record, with record and outcome if a list shows them.

    Below the *prefix* `LOGS`, over the ids of jobs that have a summary, which comes as their outcome.
    """

    def id_of(each: tuple[ObjectInfo, bytes | None]) -> str:
        return each[0].name.removeprefix(prefix).partition("/")[0]

    for folder, found in groupby(store.records(prefix), key=id_of):
        names = JobObjects(folder)
        outcome_name = names.summary if prefix else names.outcome
        shown = {info.name: data for info, data in found}
        # Anybody who can write to the bucket can make objects with other names.
        if (outcome_name if prefix else names.handle) in shown and is_job_id(folder):
            outcome: _Shown = shown.get(outcome_name, "no outcome")
            yield folder, shown.get(names.handle), outcome


def _listed_handle(
    store: Store,
    verify: Callable[[bytes, str], None],
    job_id: str,
    outcome: _Shown,
    record: bytes | None = None,
) -> JobHandle | None:
    try:
        found = find_record(store, job_id, listed=record)
        if found is None:
            return None
        handle = _handle_from(store, found)
        try:
            verify(found.data, JobObjects(job_id).handle)
        except (SignatureError, ConfigurationError):
            return handle
    except RecordError as error:
        log.warning("The job %s is left out: %s", job_id, error)
        return None
    if outcome == "no outcome":
        handle._session.listed = "no outcome"
    elif outcome is not None or record is None:
        # An outcome that is not the job's is ignored.
        try:
            found_outcome = listed_outcome(store, job_id, outcome, verify)
            handle._session.listed = status_of(found_outcome)
            handle._session.final = found_outcome
        except (SignatureError, StoreError):
            pass
        except RecordError as error:
            handle._session.listed = error.with_traceback(None)
    return handle


def _cleaned_up_handle(
    store: Store,
    verify: Callable[[bytes, str], None],
    job_id: str,
    listed: bytes | None,
) -> JobHandle | None:
    refused: KineticError | None = None
    try:
        try:
            found = find_summary(store, job_id, verify, listed=listed)
        except (SignatureError, ConfigurationError) as error:
            refused = error
            found = find_summary(store, job_id, UNSIGNED.verify, listed=listed)
    except RecordError as error:
        log.warning("The job %s is left out: %s", job_id, error)
        return None
    if found is None:
        return None
    handle = _handle_from(store, StoredRecord(found.record.record, found.data))
    session = handle._session
    session.listed = refused or status_of(found.record.outcome)
    session.final = None if refused else found.record.outcome
    session.cleaned_up = True
    return handle


def _handle_from(store: Store, found: StoredRecord[JobRecord]) -> JobHandle:
    handle = handle_of(found.record, stored=found.data)
    handle.bucket_name = str(store.location)  # It may have been moved since the record was written.
    return handle


def _may_exist(location: Location) -> bool:
    """Return whether there may be a store: only a folder can be known to be missing.

    Raises:
        StoreError: The folder is not a store, and is not empty.
    """
    if location.kind == "folder" and not Path(location.path).is_dir():
        return False
    refuse_foreign_folder(location)
    return True


def open_existing(location: Location, limit: OutageLimit | None = None) -> Store | None:
    """Open the store at *location*; None if it is a folder that does not exist.

    Raises:
        StoreError: The folder is not a store, and is not empty.
    """
    return open_at(location, limit) if _may_exist(location) else None
