"""What the hosts of a job used over time, from the samples beside its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic.jobs.stored_logs import known_attempts
from kinetic_payload.errors import InvalidRequestError, ObjectNotFoundError
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records.decode import decode
from kinetic_payload.records.usage import Usage
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.jobs.attempts import Verify
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Store


def job_usage(
    store: Store, record: JobRecord, verify: Verify, attempt: int | None = None
) -> dict[int, Usage]:
    """Return the samples of *attempt*, or of the latest one, by host; none of hosts that wrote none.

    Raises:
        InvalidRequestError: There is no such attempt.
        RecordError: An object is not what it should be.
    """
    attempts = known_attempts(store, record, verify)
    if attempt is not None and attempt not in attempts:
        raise InvalidRequestError(
            f"Job {record.job_id} has no attempt {attempt}.",
            hint=f"There are: {', '.join(map(str, attempts)) or 'none yet'}.",
        )
    number = attempt or max(attempts, default=1)

    def read(host: int) -> Usage | None:
        name = JobObjects(record.job_id).usage(number, host)
        try:
            return decode(Usage, read_record(store, name), name=name)
        except ObjectNotFoundError:
            return None

    found = parallel_map(read, range(record.hosts), threads=store.concurrency)
    return {host: usage for host, usage in enumerate(found) if usage and usage.samples}
