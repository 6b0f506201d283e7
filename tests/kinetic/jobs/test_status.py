from __future__ import annotations

from dataclasses import replace

import pytest

from kinetic.errors import FutureRecordError, RecordError, StoreError
from kinetic.job_status import JobStatus
from kinetic.jobs.fetch import failure_without_exception
from kinetic.jobs.records import find_outcome, read_reports
from kinetic.jobs.status import job_outcome, look
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_servers.fakes import FakeServices, a_report, report, report_value

CANCELLED = "cancelled"
OUTCOME = "write */outcome.json"


@pytest.mark.parametrize("becomes", ["pending", "running", "dead", "lost"])
def test_the_outcome_decides_the_status_whatever_became_of_the_resource(
    services: FakeServices, becomes: str
) -> None:
    job, backend = services.job(), services.backend
    {
        "pending": lambda: None,
        "running": lambda: backend.runs(job.job_id),
        "dead": lambda: backend.dies(job.job_id, "killed"),
        "lost": lambda: backend.loses(job.job_id),
    }[becomes]()
    report_value(services.store, job.job_id, 42)

    assert look(job, services).status is JobStatus.SUCCEEDED
    assert services.journal.of("observe *") == []


@pytest.mark.parametrize(
    ("record", "resource", "status", "written"),
    [
        (True, "dead", JobStatus.FAILED, 1),
        (True, "lost", JobStatus.FAILED, 1),
        # A clean-up removes the record first.
        (False, "dead", JobStatus.FAILED, 0),
        (False, "lost", JobStatus.NOT_FOUND, 0),
    ],
)
def test_a_vanished_job_gets_one_outcome_unless_its_record_was_removed(
    services: FakeServices, record: bool, resource: str, status: JobStatus, written: int
) -> None:
    job = services.job()
    services.backend.dies(job.job_id, "The machine went down.")
    if resource == "lost":
        services.backend.loses(job.job_id)
    if not record:
        services.store.delete(JobObjects(job.job_id).handle)

    seen = [look(job, services) for _ in range(3)]

    assert {(view.status, view.removed) for view in seen} == {(status, not record)}
    if resource == "dead":
        assert {view.reason for view in seen} == {"The machine went down."}
    assert len(services.journal.of(OUTCOME)) == written
    if written:
        assert find_outcome(services.store, job.job_id).record.written_by == "client"


@pytest.mark.parametrize("moment", ["observe *", OUTCOME])
def test_a_job_that_finishes_while_we_look_has_finished(
    services: FakeServices, moment: str
) -> None:
    job = services.job()
    services.backend.dies(job.job_id, "Its keeper is gone.")
    services.journal.before(moment, lambda: report_value(services.store, job.job_id, 42))

    assert look(job, services).status is JobStatus.SUCCEEDED
    assert find_outcome(services.store, job.job_id).record.status == "succeeded"


def test_a_failure_is_returned_although_it_cannot_be_stored(
    services: FakeServices,
) -> None:
    job = services.job()
    services.backend.dies(job.job_id, "It was killed.")
    services.journal.refuse(OUTCOME, StoreError("No space left."))

    view = look(job, services)

    assert view.status is JobStatus.FAILED
    assert view.reason.startswith("It was killed.")
    assert "No space left." in view.reason
    # Once there is room it is written down.
    assert look(job, services).reason == "It was killed."
    assert find_outcome(services.store, job.job_id).record.message == "It was killed."


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"{", RecordError, "damaged"),
        (b'{"job_id": "j"}', RecordError, "status"),
        (b'{"job_id": "j", "status": "won"}', RecordError, "status"),
        (b'{"job_id": "another", "status": "succeeded"}', RecordError, "another job, 'another'"),
        (b'{"version": 99, "news": []}', FutureRecordError, "Upgrade"),
    ],
)
def test_an_unreadable_outcome_is_an_error_that_names_it(
    services: FakeServices, data: bytes, kind: type[Exception], words: str
) -> None:
    job = services.job()
    services.store.write(JobObjects(job.job_id).outcome, data)

    with pytest.raises(kind, match=rf"{job.job_id}/outcome.json[\s\S]*{words}") as caught:
        look(job, services)

    assert type(caught.value) is kind


def test_reports_come_in_order_of_attempt_and_host_without_those_that_cannot_be_read(
    services: FakeServices,
) -> None:
    for attempt, host in [(10, 0), (2, 10), (2, 2), (1, 0)]:
        report(services.store, a_report("j", attempt=attempt, host=host))
    services.store.write(JobObjects("j").claim(1, 0), b"no report")
    services.store.write(JobObjects("j").host_value(1, 0), b"no report")
    services.store.write(JobObjects("j").host_outcome(1, 1), b"garbage")

    with pytest.warns(UserWarning, match=r"Skipped: .*j/attempts/1/host-1.json"):
        reports = read_reports(services.store, "j", services.verify)

    assert [(r.attempt, r.host) for r in reports] == [(1, 0), (2, 2), (2, 10), (10, 0)]


def test_the_message_is_that_of_the_deciding_report_if_the_outcome_has_none(
    services: FakeServices,
) -> None:
    job = services.job()
    pending = job_outcome(job, services)
    assert (pending.status, pending.message, pending.final) == (JobStatus.PENDING, "", None)
    failed = a_report(
        job.job_id, succeeded=False, reason="exited", exit_code=3, message="It exited with 3."
    )
    report(services.store, failed, message="")

    outcome = job_outcome(job, services)

    assert (outcome.status, outcome.message) == (JobStatus.FAILED, "It exited with 3.")
    assert outcome.hosts == (failed,)


def test_the_message_tells_the_cause_of_each_of_several_attempts(services: FakeServices) -> None:
    job = services.job(retries=1)
    services.backend.runs(job.job_id)
    ends = {"terminated": "The pod was preempted.", "exception": "ValueError: no"}
    for attempt, (reason, message) in enumerate(ends.items(), 1):
        host = a_report(
            job.job_id,
            attempt=attempt,
            succeeded=False,
            reason=reason,
            exit_code=1,
            message=message,
        )
        services.store.write(JobObjects(job.job_id).host_outcome(attempt, 0), encode(host))

    earlier = "Attempt 1 was preempted or stopped: The pod was preempted."
    both = f"{earlier} Attempt 2 failed: ValueError: no."
    assert job_outcome(job, services).message == both

    report(services.store, replace(host, attempt=3, reason="killed", message="Out of memory."))
    outcome = job_outcome(job, services)
    assert outcome.message == f"{both} Attempt 3: Out of memory."
    assert "failed in attempt 3: Out of memory." in str(
        failure_without_exception(outcome.final, None)
    )


def test_an_attempt_without_a_report_has_ended_if_a_later_one_began(
    services: FakeServices,
) -> None:
    job = services.job()
    services.backend.runs(job.job_id)
    names = JobObjects(job.job_id)
    services.store.write(names.claim(1, 0), b"{}")
    first = job_outcome(job, services)
    assert (first.message, first.attempts) == ("", {1: ()})

    services.store.write(names.claim(2, 0), b"{}")
    second = job_outcome(job, services)
    services.store.write(names.outcome, encode(Outcome(job_id=job.job_id, status=CANCELLED)))

    silent = "Attempt 1 ended without a report, as after SIGKILL or the loss of its machine."
    assert (second.message, second.attempts) == (silent, {1: (), 2: ()})
    assert job_outcome(job, services).message == silent
