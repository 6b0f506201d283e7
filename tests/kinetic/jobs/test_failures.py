"""From what hosts reported to what is raised, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

from kinetic.errors import JobCancelledError, JobFailedError, RemoteError
from kinetic.job_status import JobStatus
from kinetic.jobs.failures import annotated, failure_without_exception, remote_error
from kinetic.jobs.outcome import JobOutcome, deciding_host, status_of
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome
from kinetic_payload.records.outcome import Outcome

FAILED = Outcome(job_id="j", status="failed", attempt=2, host=1, message="It failed.")
HOST = HostOutcome(
    job_id="j",
    attempt=2,
    host=1,
    succeeded=False,
    reason="exception",
    phase="call",
    exit_code=1,
    message="Odd: 7",
    error=ErrorInfo(type="users.Odd", message="7", traceback="Traceback …\nusers.Odd: 7\n"),
    warnings=("Another Python.",),
)


def test_a_cancelled_job_is_failed_until_it_is_cleaned_up() -> None:
    cancelled = replace(FAILED, status="cancelled")

    assert status_of(cancelled) is JobStatus.FAILED
    assert isinstance(failure_without_exception(cancelled, None), JobCancelledError)


def test_the_report_that_decides_is_the_one_the_outcome_names() -> None:
    others = [replace(HOST, attempt=1), replace(HOST, host=0), HOST]

    assert deciding_host(FAILED, others) is HOST
    assert deciding_host(FAILED, others[:2]) is None


def test_reports_are_given_by_attempt() -> None:
    first = replace(HOST, attempt=1)
    outcome = JobOutcome("j", JobStatus.FAILED, "", FAILED, (first, HOST))

    assert outcome.attempts == {1: (first,), 2: (HOST,)}


def test_there_is_always_a_word_of_why() -> None:
    assert "It failed." in failure_without_exception(FAILED, HOST).message
    assert "Odd: 7" in failure_without_exception(replace(FAILED, message=""), HOST).message
    assert "No reason" in failure_without_exception(replace(FAILED, message=""), None).message


def test_an_error_about_a_job_knows_its_id_and_points_to_the_log() -> None:
    error = failure_without_exception(FAILED, HOST)

    assert isinstance(error, JobFailedError)
    assert error.job_id == "j"
    assert "kinetic jobs logs j" in (error.hint or "")


def test_notes_say_where_it_happened_once_however_often_it_is_raised() -> None:
    outcome = replace(FAILED, other_failed_hosts=(3, 5))
    error = annotated(annotated(ValueError("7"), outcome, HOST), outcome, HOST)

    remote, where, also, warning = error.__notes__
    assert remote.startswith("Remote traceback:\nTraceback")
    assert "'call'" in where
    assert "attempt 2 on host 1" in where
    assert "3, 5" in also
    assert warning == "Another Python."


def test_an_exception_that_cannot_be_rebuilt_is_told_in_words() -> None:
    error = remote_error(FAILED, HOST, "ModuleNotFoundError: No module named 'users'")

    assert isinstance(error, RemoteError)
    assert (error.remote_type, error.remote_message) == ("users.Odd", "7")
    assert error.message == "users.Odd: 7"
    assert "No module named 'users'" in (error.hint or "")
