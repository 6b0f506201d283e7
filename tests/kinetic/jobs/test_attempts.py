"""The attempts of a job by the claims and reports in its store, whatever others write there."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import STARTING, attempts_of, logged_attempts, starting_or_gone
from kinetic.jobs.stored_logs import follow_stored, latest_lines
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.testing import MemoryStore
from kinetic_servers.fakes import a_record, a_report

KEY = Signer(b"k" * 32)


class Job:
    """A job whose claims and reports are signed with KEY, but for what is forged."""

    def __init__(self, signer: Signer = KEY, **fields: Any) -> None:
        self.store = Later()
        self.signer = signer
        self.record: JobRecord = a_record(**fields)
        self.names = JobObjects(self.record.job_id)
        self.write(self.names.handle, encode(self.record))

    def write(self, name: str, data: bytes, *, by: Signer | None = None) -> None:
        self.store.write(name, (by or self.signer).sign(data, name))

    def claims(self, attempt: int, host: int = 0, *, by: Signer | None = None) -> None:
        claim = Claim(
            job_id=self.record.job_id,
            attempt=attempt,
            host=host,
            hostname="h",
            pid=1,
            claimed_at=1.0,
        )
        self.write(self.names.claim(attempt, host), encode(claim), by=by)

    def reports(
        self, attempt: int, reason: str, host: int = 0, *, by: Signer | None = None
    ) -> None:
        report = a_report(
            self.record.job_id, attempt=attempt, host=host, succeeded=reason == "returned",
            reason=reason, exit_code=reason != "returned", message=f"{reason} {attempt}.",
        )  # fmt: skip
        self.write(self.names.host_outcome(attempt, host), encode(report), by=by)

    def logs(self, attempt: int, text: str) -> None:
        self.store.write(self.names.log_chunk(attempt, 0, 0), f"{text}\n".encode())

    def followed(self) -> list[str]:
        lines = follow_stored(
            self.store, self.record, tail=None, ended=lambda: True,
            pause=lambda: pytest.fail("It has ended."), verify=self.signer.verify,
        )  # fmt: skip
        return [line.text for line in lines]

    def shown(self, reader: Signer = KEY) -> list[str]:
        return [line.text for line in latest_lines(self.store, self.record, reader.verify)]

    @property
    def attempts(self) -> Any:
        return attempts_of(self.store, self.record, self.signer.verify)


class Later(MemoryStore):
    """A store whose clock can be turned on."""

    later = 0.0

    def now(self) -> float:
        return super().now() + self.later


def test_evictions_and_failures_are_counted_apart_whatever_the_attempts_numbers() -> None:
    job = Job(retries=1)
    job.reports(1, "terminated")
    job.claims(2)
    job.reports(4, "exception")
    assert job.attempts.latest == 4
    assert job.attempts.results == {1: "disrupted", 2: "unknown", 4: "failed"}
    assert job.attempts.another_follows(retries=1, preemptions=None)
    assert not job.attempts.another_follows(retries=0, preemptions=None)

    job.reports(5, "exception")
    assert not job.attempts.another_follows(retries=1, preemptions=None)
    job.reports(6, "terminated")
    assert job.attempts.another_follows(retries=0, preemptions=2)
    assert not job.attempts.another_follows(retries=9, preemptions=1)
    job.claims(7)

    seen = [(view.number, view.state, view.message) for view in job.attempts.views(running=True)]
    assert seen[-2:] == [(6, "disrupted", "terminated 6."), (7, "running", "")]
    assert job.attempts.views(running=False)[-1].state == "unknown"


@pytest.mark.parametrize("by", [UNSIGNED, Signer(b"o" * 32)], ids=["unsigned", "another key"])
def test_records_that_the_key_does_not_verify_are_no_attempts(by: Signer) -> None:
    job = Job()
    job.claims(1)
    job.reports(1, "exception")
    for attempt in range(2, 9):
        job.claims(attempt, by=by)
        job.reports(attempt, "returned", by=by)

    assert list(job.attempts.ends) == [1]


# Logs


def test_a_followed_log_goes_on_after_an_eviction_without_a_retry() -> None:
    job = Job(retries=0)
    job.logs(1, "one")
    job.reports(1, "terminated")
    lines = follow_stored(
        job.store, job.record, tail=None, ended=lambda: bool(job.claims(3)) or job.logs(3, "three") is None,
        pause=lambda: None, verify=KEY.verify,
    )  # fmt: skip

    assert [line.text for line in lines] == [
        "one",
        "[kinetic] Attempt 1 ended: terminated 1. Attempt 3 begins.",
        "three",
    ]


def test_forged_logs_and_claims_are_not_shown_with_a_signed_job() -> None:
    job = Job(retries=5)
    job.claims(1)
    job.logs(1, "ours")
    job.claims(2, by=UNSIGNED)
    job.reports(3, "exception", by=UNSIGNED)
    for attempt in (2, 3, 999):
        job.logs(attempt, "theirs")

    assert job.followed() == job.shown() == ["ours"]


def test_logs_of_earlier_versions_that_signed_no_claims_are_shown() -> None:
    job = Job(retries=1)
    job.claims(1, by=UNSIGNED)
    job.reports(1, "exception")
    job.claims(2, by=UNSIGNED)
    job.claims(3, by=UNSIGNED)  # More than such a version made.
    for attempt in (1, 2, 3):
        job.logs(attempt, str(attempt))

    assert job.shown() == ["2"]
    assert list(job.attempts.ends) == [1]  # Nothing is decided by them.


def test_a_reader_without_the_key_is_shown_the_log_of_the_latest_claim() -> None:
    job = Job()
    job.claims(1)
    job.claims(2)
    job.logs(1, "1")
    job.logs(2, "2")
    assert job.shown(Signer(b"o" * 32)) == ["2"]

    for name in (job.names.handle, job.names.claim(1, 0), job.names.claim(2, 0)):
        job.store.delete(name)
    assert logged_attempts(job.store, job.record, KEY.verify) is None
    assert job.shown() == ["2"]


# A resource that is not there


def test_a_job_without_a_resource_is_starting_for_a_minute_unless_it_has_begun() -> None:
    job = Job()

    def seen() -> tuple[JobStatus, str]:
        found = starting_or_gone(job.store, job.record, KEY.verify)
        return found.status, found.reason

    assert seen()[0] is JobStatus.NOT_FOUND, "its values were collected"
    job.store.write(job.names.payload, b"")
    assert seen()[0] is JobStatus.PENDING
    job.claims(1, by=UNSIGNED)
    assert seen()[0] is JobStatus.PENDING
    job.store.later = STARTING + 1
    assert seen() == (JobStatus.NOT_FOUND, "It never started: its submit was interrupted.")
    job.store.later = 0.0
    job.claims(2)
    assert seen() == (JobStatus.NOT_FOUND, "Its resource was removed after attempt 2 had begun.")
    job.store.delete(job.names.handle)
    assert seen() == (JobStatus.NOT_FOUND, "")
