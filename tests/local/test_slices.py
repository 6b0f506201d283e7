"""Slices of several hosts on this machine: which value or failure counts, and which hosts are stopped."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

NEEDS_JAX = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


def run(project: Any, function: str) -> Any:
    """Call a function of the project `slices.py`; return what it returns."""
    project.copy("slices.py")
    return project.json("slices.py", function)


def test_the_lowest_failing_host_is_raised_and_the_others_are_named_or_stopped(project) -> None:
    error, notes, reasons = run(project, "failing")

    assert error == "ValueError: host 1"
    assert "on host 1" in notes[0]
    assert notes[1] == "Also failed: host 3."
    assert reasons == {"0": "terminated", "1": "exception", "2": "terminated", "3": "exception"}


def test_a_leader_that_returned_does_not_hide_a_worker_that_fails_later(project) -> None:
    late, again = run(project, "failing_later")

    assert late[0] == "ValueError: late"
    assert late[2]["0"] == "returned"
    assert again[0] == "'2'"


@NEEDS_JAX
@pytest.mark.slow  # four jobs of two processes, of which seven import JAX
def test_however_a_slice_is_stopped_its_hosts_tidy_up_although_jax_has_taken_sigterm(
    project,
) -> None:
    cancelled, raised, returned, early = run(project, "stopped")

    assert cancelled[0].startswith("JobCancelledError")
    assert cancelled[2] == {"0": "terminated", "1": "terminated"}
    assert raised[0] == returned[0] == early[0] == "ValueError: the culprit"
    assert "on host 0" in raised[1][0]
    assert raised[2] == {"0": "exception", "1": "terminated"}
    assert returned[2] == {"0": "returned", "1": "exception"}
    assert early[2] == {"0": "terminated", "1": "exception"}
    for _, _, _, messages, marks in (cancelled, raised, returned, early):
        assert not [message for message in messages if "killed" in message]
        assert {"0 tidied up", "1 tidied up"} <= set(marks)


@NEEDS_JAX
@pytest.mark.slow  # two processes that import JAX
def test_jax_sees_a_preemption_of_one_host_on_all_at_the_same_step(project) -> None:
    found, steps = run(project, "preempted")

    assert steps[0] == steps[1]
    assert steps[0].startswith("1 ")  # A signal from outside is meant: there is no other attempt.
    assert "SIGTERM came from outside" in found[0]
    assert "on host 1" in found[1][0]
    assert found[2] == {"0": "returned", "1": "terminated"}
