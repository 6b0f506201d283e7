from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Pickled
from kinetic_runner.parent.exit_code import ChildEnd, outcome_from, outcome_of

BLANK = HostOutcome(
    job_id="job", attempt=2, host=1, succeeded=False, reason="unreported", phase="claim",
    exit_code=143, started_at=1.0, finished_at=2.0, hostname="here",
)  # fmt: skip
DONE = HostOutcome(
    job_id="other", attempt=1, host=0, succeeded=True, reason="returned", phase="report",
    exit_code=0, value=Pickled(3, "d", inline="eA=="), phases={"call": 0.5},
)  # fmt: skip

STOPPED = replace(DONE, succeeded=False, reason="terminated", phase="call", exit_code=143)


def test_an_outcome_is_rebuilt_from_its_json_without_unknown_keys():
    error = ErrorInfo("a.B", "no", "Traceback", ("note",), Pickled(3, "d", name="n"))
    outcome = HostOutcome(**{**vars(DONE), "error": error, "warnings": ("mind",)})
    message = json.loads(encode(outcome))
    message["new"] = message["error"]["new"] = message["value"]["new"] = 1

    assert outcome_from(message) == outcome


@pytest.mark.parametrize("message", [7, None, [], {}, {"error": 7}, {"job_id": "x"}])
def test_json_that_is_no_outcome_is_refused(message):
    with pytest.raises(TypeError):
        outcome_from(message)


def test_the_childs_report_counts_except_for_job_attempt_and_host():
    end = ChildEnd(phase="report", status=0, reported=DONE, phases={"claim": 0.1, "call": 9.0})

    outcome = outcome_of(end, BLANK)

    assert (outcome.succeeded, outcome.value) == (True, DONE.value)
    assert (outcome.job_id, outcome.attempt, outcome.host) == ("job", 2, 1)
    assert outcome.phases == {"claim": 0.1, "call": 0.5}
    assert outcome_of(replace(end, status=signal.SIGKILL), BLANK).succeeded


@pytest.mark.parametrize(
    ("end", "reason", "code", "words"),
    [
        (ChildEnd(phase="call", status=0), "exited", 1, "exit code 0"),
        (ChildEnd(phase="report", status=7 << 8), "exited", 1, "exit code 7"),
        (ChildEnd(phase="data", status=3 << 8), "exited", 2, "'data'"),
        (ChildEnd(phase="call", status=9, oom_killed=True), "killed", 137, "ran out of memory"),
        (ChildEnd(phase="call", status=9, oom_killed=False), "killed", 137, "no kill for lack of memory"),
        (ChildEnd(phase="call", status=9), "killed", 137, "possibly"),
        (ChildEnd(phase="call", status=6), "killed", 134, "SIGABRT"),
        # Only a stop from outside has the exit code that costs no retry: these would be repeated for ever.
        (ChildEnd(phase="call", status=15), "killed", 1, "SIGTERM"),
        (ChildEnd(phase="call", status=0, reported=STOPPED), "exited", 1, "that the runner did not get"),
        (ChildEnd(phase="call", status=11 | 0x80), "killed", 139, "SIGSEGV"),
        (ChildEnd(phase="call", status=None), "killed", 137, "did not end"),
        (ChildEnd(phase="call", status=15, cause="timeout", timeout=2.5), "timeout", 1, "2.5 s"),
        (ChildEnd(phase="data", status=15, cause="terminated"), "terminated", 143, "'data'"),
        (
            ChildEnd(phase="call", status=9, cause="terminated", killed_by_parent=True, grace=3),
            "terminated", 143, "within 3 s",
        ),
        (ChildEnd(phase="call", status=9, cause="orphaned"), "terminated", 143, "supervisor"),
        (
            ChildEnd(phase="call", status=0, cause="terminated", reported=DONE, reported_in_time=False),
            "terminated", 143, "orderly",
        ),
    ],
)  # fmt: skip
def test_each_end_has_a_reason_an_exit_code_and_a_message(end, reason, code, words):
    outcome = outcome_of(end, BLANK)

    assert (outcome.succeeded, outcome.reason, outcome.exit_code) == (False, reason, code)
    assert words in outcome.message
    assert outcome.phase == end.phase


@pytest.mark.parametrize(
    ("limit", "peak", "words"),
    [
        (64, 63, "The limit of the container is 64 Mi, and the most that it used is 63 Mi. Use less memory, or try memory='128Mi'."),
        (2048, None, "The limit of the container is 2,048 Mi. Use less memory, or try memory='3Gi'."),
        (64, 32, "The node ran out of memory: the container used 32 Mi at most, and its limit is 64 Mi. Request what the job needs: memory="),
        (None, 63, "the kernel ran out of memory."),
    ],
)  # fmt: skip
def test_a_lack_of_memory_is_explained_with_limit_peak_and_advice(limit, peak, words):
    mebi = 2**20
    end = ChildEnd(phase="call", status=9, oom_killed=True, memory_limit=limit and limit * mebi)
    blank = replace(BLANK, peak_memory=peak and peak * mebi)

    message = outcome_of(end, blank).message

    assert message.endswith(words)
    assert "memory=" not in outcome_of(replace(end, oom_killed=False), blank).message
    assert outcome_of(end, blank).warnings == ()


def test_a_lack_of_memory_of_another_process_is_a_warning_of_the_failure():
    failed = replace(DONE, succeeded=False, reason="exception", exit_code=1, warnings=("mind",))
    end = ChildEnd(phase="call", status=0, reported=failed, oom_killed=True, memory_limit=2**30)
    exited = replace(end, reported=None, status=7 << 8)

    mind, note = outcome_of(end, BLANK).warnings
    assert (mind, note.endswith("try memory='2Gi'.")) == ("mind", True)
    assert "killed a process that the function had started" in note
    assert outcome_of(exited, BLANK).warnings == (note,)
    for changes in ({"oom_killed": False}, {"memory_limit": None}):
        assert outcome_of(replace(end, **changes), BLANK).warnings == ("mind",)
