"""What a supervisor writes at the end of an attempt: reports and ends of its runners → outcome or retry."""

from dataclasses import replace
from typing import Any

import pytest

from kinetic.backends.local.supervisor.attempt import Verdict
from kinetic.backends.local.supervisor.report import EndedRunner, report_attempt
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.testing import MemoryStore
from kinetic_servers.launches import outcome_of

JOB = "cpu-f-20260101-000000-abc"
SIGTERM, SIGKILL = 15, 9


def report(store: MemoryStore, host: int, reason: str, attempt: int = 1) -> None:
    succeeded = reason == "returned"
    outcome = HostOutcome(
        job_id=JOB, attempt=attempt, host=host, succeeded=succeeded, reason=reason,  # type: ignore[arg-type]
        phase="call", exit_code=0 if succeeded else 1, message=reason,
    )  # fmt: skip
    store.write(JobObjects(JOB).host_outcome(attempt, host), encode(outcome))


def settled(store: MemoryStore, *ended: EndedRunner, **options: object) -> Verdict:
    return report_attempt(store, JOB, 1, ended, **{"retries": 0, "started_at": 0.0, **options})  # type: ignore[arg-type]


ENDED = EndedRunner(host=0, status=0)
EXIT_1 = EndedRunner(host=0, status=256, first=True)
KILLED = EndedRunner(host=0, status=SIGKILL, first=True)


@pytest.mark.parametrize(
    ("reported", "ended", "options", "status", "host", "message"),
    [
        # A report counts, however its runner ended.
        (["returned"], [ENDED], {}, "succeeded", 0, "returned"),
        (["returned"], [KILLED], {}, "succeeded", 0, "returned"),
        (["exception"], [EXIT_1], {"stop": "cancelled", "retries": 3}, "failed", 0, "exception"),
        # The supervisor reports for a runner that did not.
        ([], [KILLED], {}, "failed", 0, "The runner was killed by SIGKILL."),
        ([], [EXIT_1], {}, "failed", 0, "exit code 1 and reported no reason"),
        ([], [EndedRunner(host=0, status=None, note="No memory.")], {}, "failed", 0, "No memory."),
        ([], [replace(KILLED, ended_by_us=True)], {"stop": "cancelled"}, "cancelled", 0, "on request"),
        ([], [replace(KILLED, ended_by_us=True)], {"stop": "terminated"}, "failed", 0, "SIGTERM"),
        # A host that the supervisor stopped does not explain the failure of another.
        (["exception"], [EXIT_1, EndedRunner(host=1, status=SIGTERM, ended_by_us=True)], {}, "failed", 0, "exception"),
        (["terminated", "exception"], [ENDED, replace(EXIT_1, host=1)], {}, "failed", 1, "exception"),
        # Another attempt follows.
        ([], [KILLED], {"retries": 1}, None, None, "killed by SIGKILL"),
        (["exception"], [EXIT_1], {"retries": 1}, None, None, "exception"),
    ],
)  # fmt: skip
def test_reports_and_ends_of_runners_decide_the_outcome_or_a_retry(
    reported: list[str],
    ended: list[EndedRunner],
    options: dict[str, Any],
    status: str | None,
    host: int | None,
    message: str,
) -> None:
    store = MemoryStore()
    for number, reason in enumerate(reported):
        report(store, number, reason)

    verdict = settled(store, *ended, **options)

    outcome = outcome_of(store, JOB)
    assert (verdict.succeeded, verdict.retry) == (status == "succeeded", status is None)
    assert message in verdict.message
    assert (outcome and (outcome.status, outcome.host, outcome.other_failed_hosts)) == (
        (status, host, ()) if status else None
    )
    # A host that did not report has a report now.
    for each in ended:
        assert store.stat(JobObjects(JOB).host_outcome(1, each.host)) is not None


KEY = Signer(b"k" * 32)
CANCELLED = b'{"job_id": "%s", "status": "cancelled"}' % JOB.encode()


@pytest.mark.parametrize("there", [CANCELLED, b"[1]", b"\xff", b'{"status": "succeeded?"}'])
def test_the_first_outcome_stays_and_only_a_valid_success_is_one(there: bytes) -> None:
    store = MemoryStore()
    report(store, 0, "returned")
    store.write(JobObjects(JOB).outcome, there)

    assert not settled(store, ENDED).succeeded
    assert store.read(JobObjects(JOB).outcome) == there


def test_no_attempt_follows_once_the_job_was_cancelled() -> None:
    store = MemoryStore()
    store.write(JobObjects(JOB).outcome, CANCELLED)

    assert not settled(store, KILLED, retries=5).retry


@pytest.mark.parametrize("forged", ["nothing", "report", "cancelled", "succeeded"])
def test_with_a_key_a_supervisor_overwrites_forged_records_with_signed_ones(forged: str) -> None:
    store, name = MemoryStore(), JobObjects(JOB).outcome
    if forged == "report":
        report(store, 0, "returned")
    elif forged != "nothing":
        store.write(name, CANCELLED.replace(b"cancelled", forged.encode()))
    assert settled(store, KILLED, signer=KEY, retries=1).retry

    verdict = settled(store, KILLED, signer=KEY)

    assert "killed by SIGKILL" in verdict.message
    for each in (name, JobObjects(JOB).host_outcome(1, 0)):
        KEY.verify(store.read(each), each)
    assert outcome_of(store, JOB).status == "failed"  # type: ignore[union-attr]
