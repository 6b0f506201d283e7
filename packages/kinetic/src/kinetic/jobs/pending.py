"""The reasons for which a job was pending: recorded beside its log by the clients that see them, for its report.

The object is not signed: its texts are shown, and nothing depends on them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kinetic_payload.errors import KineticError, ObjectNotFoundError, RecordError
from kinetic_payload.layout import JobObjects

if TYPE_CHECKING:
    from kinetic_payload.records.usage import PendingReason
    from kinetic_payload.stores.store import Store

_MOST: Final = 8
"""Reasons that are kept, the latest ones. Those that differ only in their numbers are one."""
_LONGEST: Final = 1000
SHORT: Final = 10.0
"""Seconds of a wait of which nothing is written: a job that starts soon costs no request."""
_AGAIN: Final = 300.0
"""Seconds after which a reason that has not changed is written again."""


class PendingNotes:
    """The reasons that one process saw for the wait of one job."""

    def __init__(self, store: Store, job_id: str, clock: Callable[[], float] = time.time) -> None:
        self._store, self._job_id, self._clock = store, job_id, clock
        self._due = self._again = clock() + SHORT
        self._seen: dict[str, tuple[str, float, float]] = {}

    def saw(self, text: str) -> None:
        """Note that the job waits now because of *text*."""
        now, kind = self._clock(), _kind(text)
        known = self._seen.pop(kind, None)  # The latest one is the last.
        self._seen[kind] = (text, known[1] if known else now, now)
        if now >= (self._again if known else self._due):
            self._again = now + _AGAIN
            note_reasons(self._store, self._job_id, self._seen.values())

    def over(self) -> None:
        """Note that the job waited until now."""
        now = self._clock()
        if self._seen and now >= self._due:
            kind, (text, first, _) = self._seen.popitem()
            self._seen[kind] = (text, first, now)
            note_reasons(self._store, self._job_id, self._seen.values())
        self._seen.clear()


def note_reasons(store: Store, job_id: str, seen: Iterable[tuple[str, float, float]]) -> None:
    """Add reasons, with the times at which they were *seen* first and last, to those that are kept of the job.

    An error is ignored: nothing of the job depends on them.
    """
    from kinetic_payload.records.encode import encode
    from kinetic_payload.records.usage import PendingReason, PendingReasons

    with suppress(KineticError):
        try:
            known = read_reasons(store, job_id)
        except RecordError:
            known = ()  # What is damaged is replaced.
        found: dict[str, PendingReason] = {}
        for each in (*known, *(PendingReason(text[:_LONGEST], *times) for text, *times in seen)):
            before = found.pop(_kind(each.text), each)
            first = min(before.first, each.first)
            found[_kind(each.text)] = PendingReason(each.text, first, each.last)
        latest = sorted(found.values(), key=lambda each: each.last)[-_MOST:]
        store.write(JobObjects(job_id).pending, encode(PendingReasons(tuple(latest))))


def read_reasons(store: Store, job_id: str) -> tuple[PendingReason, ...]:
    """Return the reasons that are kept of the job, whoever wrote them, in the order in which they were seen last.

    Raises:
        RecordError: The object is not what it should be.
    """
    from kinetic_payload.limits import read_record
    from kinetic_payload.records.decode import decode
    from kinetic_payload.records.usage import PendingReasons

    name = JobObjects(job_id).pending
    try:
        return decode(PendingReasons, read_record(store, name), name=name).reasons[-_MOST:]
    except ObjectNotFoundError:
        return ()


def submitted_at(created_at: str) -> float:
    """Return *created_at* of a record in seconds since the epoch; 0 if it is no time."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(created_at).timestamp()
    except ValueError:
        return 0.0


def _kind(text: str) -> str:
    return re.sub(r"\d+", "#", text[:_LONGEST])
