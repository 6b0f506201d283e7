"""Results collected at once, during and after a clean-up, and of damaged jobs."""

from __future__ import annotations

import json
from typing import Any


def called(project: Any, function: str, *args: Any) -> Any:
    """Call a function of the project `results.py`; return what it returns."""
    project.copy("results.py")
    given = [json.dumps(one) for one in args]
    return json.loads(project.output("results.py", function, *given).splitlines()[-1])


def test_clean_up_removes_the_parts_that_were_named_in_each_state(project) -> None:
    found = called(project, "cleaned_up")

    missing = "JobNotFoundError"
    assert found == {
        "running k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "running gcs": ["JobError", "RUNNING", "RUNNING", "ResultTimeoutError", True],
        "done k8s": ["None", "SUCCEEDED", "SUCCEEDED", "b'x'", True],
        "done gcs": ["None", "SUCCEEDED", missing, missing, False],
        "failed k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
    }


def test_several_that_collect_at_once_each_get_the_value_or_the_reason(project) -> None:
    found = called(project, "collected_at_once")

    assert set(found) - {"200000"} <= {
        text for text in found if text.startswith("JobNotFoundError")
    }
    assert found.count("200000") >= 2


def test_a_cancellation_and_the_end_of_a_job_lead_to_one_outcome(project) -> None:
    found = called(project, "cancelled_and_finished")

    for first, status, result, second, other in found:
        assert first == second == "None"
        assert result.partition("\n")[0] == other.partition("\n")[0]
        assert (status, result[:18]) in {("SUCCEEDED", "b'x'"), ("FAILED", "JobCancelledError:")}


def test_a_clean_up_ends_the_wait_of_another_process(project) -> None:
    found = called(project, "cleaned_up_while_waiting")

    assert set(found) <= {"JobCancelledError", "JobNotFoundError"}


def test_a_damaged_record_is_named_hides_no_other_job_and_can_be_removed(project) -> None:
    parts = {"handle.json": "{", "outcome.json": '{"version": 99}', "attempts/1/host-0.json": "[]"}
    found = called(project, "damaged_records", parts)

    for part, (error, listed, good_is_listed) in zip(parts, found, strict=True):
        assert error.startswith(("RecordError", "FutureRecordError", "IntegrityError"))
        assert part in error
        assert listed == 0
        assert good_is_listed


def test_a_damaged_state_file_leaves_a_truthful_status(project) -> None:
    damages = ["", "[1, 2]", '{"status": "dancing", "reason": "", "attempts": []}']
    found = called(project, "damaged_state", damages)

    assert found == [[0, "b'x'"]] * len(damages)


def test_damaged_project_and_data_are_uploaded_again_once_they_are_deleted(project) -> None:
    project.write("set/file.txt", "data")
    found = called(project, "damaged_contents")

    good, context, good_again, data, good_at_last = found
    assert good == good_again == good_at_last == "'data'"
    for error in (context, data):
        assert error.startswith("JobFailedError")
        assert "a submit then uploads it again" in error


def test_an_unknown_job_is_an_error_that_names_the_stores(project) -> None:
    found = called(project, "unknown")

    unknown, strange, status, cleaned, log = found
    assert unknown.startswith("JobNotFoundError")
    assert f"{project.home}/store" in unknown
    assert strange.startswith("InvalidRequestError")
    assert status[0] == 1
    assert "It was cleaned up. Its log is kept" in cleaned
    assert log == [0, "working\n"]
