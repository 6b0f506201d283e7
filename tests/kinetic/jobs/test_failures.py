"""What errors about a job tell; test_collect.py has the table of which error each end raises."""

from __future__ import annotations

from dataclasses import replace

from kinetic.jobs.fetch import annotated
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


def test_notes_tell_where_it_happened_once_however_often_the_error_is_raised() -> None:
    outcome = replace(FAILED, other_failed_hosts=(3, 5))
    error = annotated(annotated(ValueError("7"), outcome, HOST), outcome, HOST)

    remote, where, also, warning = error.__notes__
    assert remote.startswith("Remote traceback:\nTraceback")
    assert "'call'" in where
    assert "attempt 2 on host 1" in where
    assert "3, 5" in also
    assert warning == "Another Python."
