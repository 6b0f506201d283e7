"""Results that are collected at once, and while their jobs are cancelled."""

from __future__ import annotations

from typing import Any


def called(project: Any, function: str) -> Any:
    """Call a function of the project `results.py`; return what it returns."""
    project.copy("results.py")
    return project.json("results.py", function)


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
