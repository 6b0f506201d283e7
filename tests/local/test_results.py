"""Results asked for again, at once, late, after clean-up, and of jobs that somebody tampered with."""

from __future__ import annotations

import json
from typing import Any

import pytest


def said(project: Any, function: str, *args: Any) -> Any:
    """Call a function of the project `results.py`; return what it returns."""
    project.copy("results.py")
    given = [json.dumps(one) for one in args]
    return json.loads(project.output("results.py", function, *given).splitlines()[-1])


def test_clean_up_takes_what_it_is_told_to_in_every_state(project) -> None:
    found = said(project, "cleaned_up")

    missing, cancelled = "JobNotFoundError", "JobCancelledError"
    assert found == {
        "running k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "running k8s": ["None", "FAILED", "FAILED", cancelled, True],
        "running gcs": ["JobError", "RUNNING", "RUNNING", "ResultTimeoutError", True],
        "running": ["None", "RUNNING", "RUNNING", "ResultTimeoutError", True],
        "done k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "done k8s": ["None", "SUCCEEDED", "SUCCEEDED", "b'x'", True],
        "done gcs": ["None", "SUCCEEDED", missing, missing, False],
        "done": ["None", "SUCCEEDED", "SUCCEEDED", "b'x'", True],
        "failed k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "failed k8s": ["None", "FAILED", "FAILED", "ValueError", True],
        "failed gcs": ["None", "FAILED", missing, missing, False],
        "failed": ["None", "FAILED", "FAILED", "ValueError", True],
    }


def test_without_its_artifacts_a_finished_job_stays_finished_and_says_what_is_gone(project) -> None:
    found = said(project, "without_artifacts")

    (status, result, log), later, left = found
    assert status == later == "SUCCEEDED"
    assert "its artifacts were removed" in result
    assert log == "working\n"
    assert not any(name.startswith("cpu-") for name in left)


def test_several_collect_at_once_and_each_gets_the_value_or_hears_why_not(project) -> None:
    found = said(project, "collected_at_once")

    assert set(found) - {"200000"} <= {
        text for text in found if text.startswith("JobNotFoundError")
    }
    assert found.count("200000") >= 5


def test_who_cancels_and_who_finishes_agree_on_one_end(project) -> None:
    found = said(project, "cancelled_and_finished")

    for first, status, result, second, other in found:
        assert first == second == "None"
        assert result.partition("\n")[0] == other.partition("\n")[0]
        assert (status, result[:18]) in {("SUCCEEDED", "b'x'"), ("FAILED", "JobCancelledError:")}


def test_a_clean_up_while_somebody_waits_ends_the_wait_in_words(project) -> None:
    found = said(project, "cleaned_up_while_waiting")

    assert set(found) <= {"JobCancelledError", "JobNotFoundError"}


DAMAGE = ["", "{", "[1, 2]", '"text"', '{"version": 99}', '{"job_id": 3}', "\udcff"]


@pytest.mark.parametrize("part", ["handle.json", "outcome.json", "attempts/1/host-0.json"])
def test_a_damaged_record_is_named_hides_no_other_job_and_can_be_removed(project, part) -> None:
    found = said(project, "damaged_record", DAMAGE, part)

    for error, listed, good_is_listed, _ in found:
        assert error.startswith(("RecordError", "FutureRecordError", "IntegrityError"))
        assert part in error
        assert listed == 0
        assert good_is_listed


def test_a_damaged_state_leaves_a_truthful_status(project) -> None:
    found = said(project, "damaged_state", DAMAGE)

    assert found == [[0, "b'x'"]] * (len(DAMAGE) + 1)


def test_a_value_that_was_tampered_with_is_never_unpickled(project) -> None:
    found = said(project, "tampered_with")

    ends, trapped = found
    assert not trapped
    assert [end.partition(":")[0] for end in ends] == [
        "IntegrityError",
        "IntegrityError",
        "SUCCEEDED",
    ] * 2


def test_what_is_stored_by_its_contents_and_was_damaged_is_sent_again(project) -> None:
    project.write("set/file.txt", "data")
    found = said(project, "damaged_contents")

    good, context, good_again, data, good_at_last = found
    assert good == good_again == good_at_last == "'data'"
    for error in (context, data):
        assert error.startswith("JobFailedError")
        assert "Submit the job again" in error


def test_an_unknown_job_is_said_with_where_it_was_looked_for(project) -> None:
    found = said(project, "unknown")

    unknown, strange, status, cleaned, log = found
    assert unknown.startswith("JobNotFoundError")
    assert f"{project.home}/store" in unknown
    assert strange.startswith("InvalidRequestError")
    assert status[0] == 1
    assert "It was cleaned up. Its log is kept" in cleaned
    assert log == [0, "working\n"]
