"""The outcome that a client decides from what hosts reported, if nothing of the job is left to write one."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic.backends.backend import Ending, Observation
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import deciding_host, outcome_of_vanished
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.testing import MemoryStore
from kinetic_servers.fakes import a_record, a_report

KEY = Signer(b"k" * 32)
OTHER_KEY = Signer(b"o" * 32)
REASON = "The job's supervisor died."


def vanished(
    *reports: dict[int, str], by: Signer = KEY, status: Any = JobStatus.FAILED, **fields: Any
) -> Outcome:
    """Return the outcome of a job whose hosts reported these reasons, a dict for each attempt."""
    store, record = MemoryStore(), a_record(**fields)
    for attempt, reasons in enumerate(reports, 1):
        for host, reason in reasons.items():
            succeeded = reason == "returned"
            more = {"succeeded": succeeded, "reason": reason, "exit_code": 0 if succeeded else 1}
            report = a_report(record.job_id, attempt=attempt, host=host, message=reason, **more)
            name = JobObjects(record.job_id).host_outcome(attempt, host)
            store.write(name, by.sign(encode(report), name))
    seen = Observation(status, REASON, ending=Ending.VANISHED)
    return outcome_of_vanished(store, record, seen, now=1.0, verify=KEY.verify)


@pytest.mark.parametrize(
    ("reports", "status", "host", "message"),
    [
        ([], "failed", None, REASON),
        ([{0: "returned", 1: "returned"}], "succeeded", 0, "returned"),
        ([{0: "returned"}], "failed", None, REASON),
        ([{0: "terminated", 1: "exception"}], "failed", 1, "exception"),
        ([{0: "terminated", 1: "killed"}], "failed", 1, "killed"),
        ([{0: "terminated", 1: "terminated"}], "failed", None, f"terminated {REASON}"),
        ([{0: "exception"}, {0: "returned", 1: "returned"}], "succeeded", 0, "returned"),
    ],
)
def test_the_reports_of_its_hosts_decide_the_outcome_of_a_vanished_job(
    reports: list[dict[int, str]], status: str, host: int | None, message: str
) -> None:
    outcome = vanished(*reports, hosts=2)

    assert (outcome.status, outcome.host, outcome.message) == (status, host, message)
    assert outcome.written_by == "client"
    assert (outcome.digest is not None) is (host is not None)


def test_one_preemption_too_many_is_a_failure_that_names_the_limit() -> None:
    outcome = vanished({0: "terminated"}, {0: "terminated"}, preemptions=1)

    assert (outcome.status, outcome.attempt) == ("failed", 2)
    assert outcome.message == "terminated preemptions=1 allows no other attempt."


@pytest.mark.parametrize("by", [UNSIGNED, OTHER_KEY], ids=["unsigned", "another key"])
def test_reports_that_the_job_did_not_write_support_no_outcome(by: Signer) -> None:
    outcome = vanished({0: "returned"}, by=by)

    assert (outcome.status, outcome.digest, outcome.message) == ("failed", None, REASON)


def test_a_resource_that_succeeded_without_reports_means_that_they_were_removed() -> None:
    assert "report was removed" in vanished(status=JobStatus.SUCCEEDED).message


def test_the_deciding_report_is_that_of_the_attempt_and_host_in_the_outcome() -> None:
    reports = [a_report("j", attempt=n, host=host) for n, host in ((1, 1), (2, 0), (2, 1))]
    final = Outcome(job_id="j", status="failed", attempt=2, host=1)

    assert deciding_host(final, reports) is reports[2]
    assert deciding_host(final, reports[:2]) is None
