import json

import pytest

from kinetic.backends.backend import Observation
from kinetic.backends.local.supervisor.attempt import Verdict
from kinetic.backends.local.supervisor.report import EndedRunner, report_attempt
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import outcome_of_vanished
from kinetic.testing import a_launch, outcome_of
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.testing import MemoryStore

JOB = "cpu-f-20260101-000000-abc"
SIGTERM, SIGKILL = 15, 9
VANISHED = Observation(JobStatus.FAILED, "The job's supervisor died.", vanished=True)


def report(store: MemoryStore, host: int, reason: str, attempt: int = 1) -> None:
    succeeded = reason == "returned"
    outcome = HostOutcome(
        job_id=JOB, attempt=attempt, host=host, succeeded=succeeded, reason=reason,  # type: ignore[arg-type]
        phase="call", exit_code=0 if succeeded else 1, message=reason,
    )  # fmt: skip
    store.write(JobObjects(JOB).host_outcome(attempt, host), encode(outcome))


def settled(store: MemoryStore, *ended: EndedRunner, **options: object) -> Verdict:
    return report_attempt(store, JOB, 1, ended, **{"retries": 0, "started_at": 0.0, **options})  # type: ignore[arg-type]


def test_a_host_that_our_own_signal_met_while_it_started_explains_nothing() -> None:
    store = MemoryStore()
    report(store, 0, "exception")
    settled(
        store,
        EndedRunner(host=0, status=256, first=True),
        EndedRunner(host=1, status=SIGTERM, ended_by_us=True),
    )
    outcome = outcome_of(store, JOB)
    assert outcome is not None
    assert (outcome.host, outcome.other_failed_hosts) == (0, ())
    said = json.loads(store.read(JobObjects(JOB).host_outcome(1, 1)))
    assert said["reason"] == "terminated"


def test_an_outcome_that_is_none_is_no_success_and_stays_as_it_is() -> None:
    for forged in (b"[1]", b"\xff", b'{"status": "succeeded?"}'):
        store = MemoryStore()
        report(store, 0, "returned")
        store.write(JobObjects(JOB).outcome, forged)
        assert not settled(store, EndedRunner(host=0, status=0)).succeeded
        assert store.read(JobObjects(JOB).outcome) == forged


def test_before_a_retry_no_outcome_is_written() -> None:
    store = MemoryStore()
    assert settled(store, EndedRunner(host=0, status=SIGKILL, first=True), retries=1).retry
    assert outcome_of(store, JOB) is None


def test_the_outcome_that_was_there_first_stays() -> None:
    store = MemoryStore()
    store.write(JobObjects(JOB).outcome, b'{"job_id": "%s", "status": "cancelled"}' % JOB.encode())
    report(store, 0, "returned")
    assert not settled(store, EndedRunner(host=0, status=0)).succeeded
    assert outcome_of(store, JOB).status == "cancelled"  # type: ignore[union-attr]


def test_a_leader_that_died_after_its_report_succeeded() -> None:
    store = MemoryStore()
    report(store, 0, "returned")
    assert settled(store, EndedRunner(host=0, status=SIGKILL)).succeeded


def test_a_job_that_finished_while_it_was_cancelled_keeps_how_it_ended() -> None:
    store = MemoryStore()
    report(store, 0, "exception")
    settled(store, EndedRunner(host=0, status=256), stop="cancelled", retries=3)
    assert outcome_of(store, JOB).status == "failed"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reports", "status", "host"),
    [
        ([], "failed", None),
        (["returned", "returned"], "succeeded", 0),
        (["returned"], "failed", None),
        (["terminated", "exception"], "failed", 1),
        (["terminated", "killed"], "failed", 1),
        (["terminated", "terminated"], "failed", None),
    ],
)
def test_a_vanished_job_is_what_its_hosts_reports_support(
    reports: list[str], status: str, host: int | None
) -> None:
    store = MemoryStore()
    record = a_launch(store, "", job_id=JOB, hosts=2).record
    for number, reason in enumerate(reports):
        report(store, number, reason)
    outcome = outcome_of_vanished(store, record, VANISHED, now=1.0, verify=UNSIGNED.verify)
    assert (outcome.status, outcome.host, outcome.written_by) == (status, host, "client")
    if host is None:
        assert outcome.message == VANISHED.reason


KEY = Signer(b"k" * 32)


def test_where_there_is_a_key_what_a_supervisor_writes_is_signed() -> None:
    store = MemoryStore()
    settled(store, EndedRunner(host=0, status=SIGKILL), signer=KEY)
    for name in (JobObjects(JOB).outcome, JobObjects(JOB).host_outcome(1, 0)):
        KEY.verify(store.read(name), name)


def test_no_supervisor_vouches_for_a_report_that_the_job_did_not_write() -> None:
    store = MemoryStore()
    report(store, 0, "returned")
    settled(store, EndedRunner(host=0, status=0), signer=KEY)
    outcome = outcome_of(store, JOB)
    assert outcome is not None
    assert outcome.status == "failed"
    assert "reported no reason" in outcome.message
    # It says so in the place of what was there, and vouches for that alone.
    KEY.verify(store.read(JobObjects(JOB).host_outcome(1, 0)), JobObjects(JOB).host_outcome(1, 0))


@pytest.mark.parametrize("status", ["cancelled", "succeeded"])
def test_a_forged_outcome_stops_no_retry_and_takes_no_outcome_s_place(status: str) -> None:
    store, name = MemoryStore(), JobObjects(JOB).outcome
    store.write(name, b'{"job_id": "%s", "status": "%s"}' % (JOB.encode(), status.encode()))
    assert settled(
        store, EndedRunner(host=0, status=SIGKILL, first=True), signer=KEY, retries=1
    ).retry

    verdict = settled(store, EndedRunner(host=0, status=SIGKILL, first=True), signer=KEY)

    assert "killed by SIGKILL" in verdict.message
    KEY.verify(store.read(name), name)
    assert outcome_of(store, JOB).status == "failed"  # type: ignore[union-attr]


def test_a_vanished_job_is_not_what_somebody_wrote_in_its_place() -> None:
    store = MemoryStore()
    record = a_launch(store, "", job_id=JOB).record
    report(store, 0, "returned")
    outcome = outcome_of_vanished(store, record, VANISHED, now=1.0, verify=KEY.verify)
    assert (outcome.status, outcome.digest) == ("failed", None)
