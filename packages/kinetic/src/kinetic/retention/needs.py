"""What the jobs in a store need that have not ended, and when the others ended.

A job has ended when it has an outcome, and a batch when it was cancelled, when all of its inputs that were started have
one, or when its values were collected. What other jobs need is kept, whether or not they still run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby, islice
from typing import Any, Final

from kinetic.retention.ages import LEFT_AGE
from kinetic_payload.errors import ObjectNotFoundError, RecordError
from kinetic_payload.layout import (
    GROUPS,
    JobObjects,
    group_of,
    is_group_id,
    is_job_object,
    is_run_id,
)
from kinetic_payload.limits import read_record
from kinetic_payload.project.context import REFRESH_AGE
from kinetic_payload.records.encode import fields_of
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import parallel_map

SAFE_AGE: Final = 2 * REFRESH_AGE
"""Seconds after which whatever a submit is about to use has been renewed, even if it takes a week; what is younger shows
no sign of it."""
_HEAD: Final = 1 << 16
"""Bytes that most headers of payloads fit in."""
_LONGEST_HEAD: Final = 16 << 20


@dataclass
class Needs:
    """What jobs need, by digests, and the jobs by their ids."""

    unfinished: set[str] = field(default_factory=set)
    ended: dict[str, float] = field(default_factory=dict)
    """When each job ended, by the store's clock."""
    contexts: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    """The parts of their `output_dir`: a job may go on with the outputs of an earlier one."""
    named: set[str] = field(default_factory=set)
    """The contexts of all jobs, of those that have ended, too."""
    unclear: list[str] = field(default_factory=list)
    """A sentence for each job that has not ended, and whose contexts or data cannot be read."""

    def job(self, job_id: str) -> bool:
        """Return whether a job, or the batch of a member, has not ended."""
        return not self.unfinished.isdisjoint((job_id, group_of(job_id)[0]))


def read_needs(store: Store, *, named: bool = False) -> Needs:
    """Return what the jobs in *store* need; `Needs.named` only if it is asked for.

    Read it after a list of what may be removed: a job that was submitted meanwhile has renewed what it uses.
    """
    needs, todo = Needs(), list[tuple[JobObjects, bytes | None]]()
    for folder, listed in groupby(store.records(), key=lambda each: each[0].name.partition("/")[0]):
        names, shown = JobObjects(folder), {info.name: (info, data) for info, data in listed}
        if names.handle in shown and is_run_id(folder):
            ended = shown.get(names.outcome)
            if ended is not None:
                needs.ended[folder] = ended[0].updated
            if ended is None or named:
                todo.append((names, shown[names.handle][1]))
    groups = (folder.removeprefix(GROUPS).rstrip("/") for folder in store.folders(GROUPS))
    todo += [(JobObjects(group), None) for group in groups if is_group_id(group)]
    parallel_map(lambda job: _note(needs, store, *job), todo, threads=store.concurrency)
    return needs


def submitting(store: Store, needs: Needs, now: float) -> Iterator[str]:
    """Iterate over the ids of jobs that have a payload of the last day, and no record yet."""
    for prefix in ("", GROUPS):
        for folder in store.folders(prefix):
            job_id = folder[len(prefix) :].rstrip("/")
            if is_run_id(job_id) and job_id not in needs.ended and job_id not in needs.unfinished:
                payload = store.stat(JobObjects(job_id).payload)
                if payload is not None and now - payload.updated < LEFT_AGE:
                    yield job_id


def _note(needs: Needs, store: Store, names: JobObjects, listed: bytes | None) -> None:
    """Add what a job or a batch needs, in any thread; *listed* is its record, if a list showed it."""
    job_id = names.job_id
    try:
        record = fields_of(read_record(store, names.handle, listed=listed))
        job = record.get("job") or record
        digests = (job.get("context_digest"), job.get("environment_digest"))
        contexts = {digest for digest in digests if digest is not None}
        needs.named.update(contexts)
        if is_group_id(job_id) and (end := end_of_batch(store, names, record)) is not None:
            needs.ended[job_id] = end
        if job_id not in needs.ended:
            needs.unfinished.add(job_id)
            needs.contexts.update(contexts)
            needs.outputs.update(str(job.get("output_dir")).split("/"))
            from kinetic_payload.calls.call import read_header

            head = store.read(names.payload, end=_HEAD)
            if b"\n" not in head:
                head = store.read(names.payload, end=_LONGEST_HEAD)
            data = {ref.digest for ref in read_header(BytesIO(head)).data if ref.digest is not None}
            if is_group_id(job_id):
                for info in store.list(f"{names.prefix}loaded/"):
                    data.add(str(fields_of(read_record(store, info.name))["digest"]))
            needs.data.update(data)
    except ObjectNotFoundError as error:
        # A clean-up removes the record first.
        if job_id not in needs.ended and store.stat(names.handle) is not None:
            needs.unfinished.add(job_id)
            needs.unclear.append(f"{job_id} has not ended, and lacks an object: {error.message}")
    except (RecordError, TypeError, ValueError, AttributeError, KeyError) as error:
        if job_id not in needs.ended:
            needs.unfinished.add(job_id)
            needs.unclear.append(f"{job_id} has not ended, and cannot be read: {error}")


def end_of_batch(store: Store, names: JobObjects, manifest: Mapping[str, Any]) -> float | None:
    """Return when a batch ended; None if it has not."""
    stopped = store.stat(names.outcome)
    if stopped is None:
        total = int(manifest["total_expected"]) - len(manifest.get("failed", ()))
        ends = [
            info.updated
            for info, _ in store.records(names.members)
            if info.name.endswith("/outcome.json") and is_job_object(info.name, names.job_id)
        ]
        if len(ends) >= total:
            return max(ends, default=0.0)
        # A clean-up that was interrupted has left only the manifest.
        left = (each for each in store.list(names.prefix) if is_job_object(each.name, names.job_id))
        first = [*islice(left, 2)]
        return first[0].updated if [each.name for each in first] == [names.handle] else None
    if fields_of(read_record(store, names.outcome)).get("status") != "failed":
        return stopped.updated  # It was cancelled, or all of its values were collected.
    # It was stopped after failures: what had begun may go on.
    last, begun = stopped.updated, set[str]()
    for info in store.list(names.members):
        index, _, rest = info.name[len(names.members) :].partition("/")
        if rest == "outcome.json":
            begun.discard(index)
            last = max(last, info.updated)
        else:
            begun.add(index)
    return None if begun else last
