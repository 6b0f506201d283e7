"""Slices of several hosts on this machine: whose value counts, whose failure, and who is stopped."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest


def said(project: Any, function: str) -> Any:
    """Call a function of the project `slices.py`; return what it returns."""
    project.copy("slices.py")
    return json.loads(project.output("slices.py", function).splitlines()[-1])


def test_the_leaders_value_counts_every_log_is_followed_and_jax_is_left_alone(project) -> None:
    value, followed, log, tail = said(project, "followed")

    lines = [f"[host {n}] hello from {n} of 4" for n in range(4)]
    assert value == [0, False]
    assert sorted(followed) == lines
    assert log.splitlines() == lines
    assert tail == lines[0]


def test_the_lowest_failing_host_is_raised_the_others_are_named_or_stopped(project) -> None:
    everywhere, two, worker = said(project, "failing")

    assert everywhere[0] == "ValueError: host 0"
    assert "on host 0" in everywhere[1][0]
    assert everywhere[1][1] == "Also failed: hosts 1, 2, 3."
    assert two[0] == "ValueError: host 1"
    assert two[1][1] == "Also failed: host 3."
    assert two[2] == {
        "0": "terminated",
        "1": "exception",
        "2": "terminated",
        "3": "exception",
    }
    assert "exit code 3" in worker[0]
    assert "on host 2" in worker[1][0]
    assert worker[2] == {"0": "terminated", "1": "terminated", "2": "exited", "3": "terminated"}


def test_a_leader_that_returned_does_not_hide_a_worker_that_fails_later(project) -> None:
    late, again = said(project, "failing_later")

    assert late[0] == "ValueError: late"
    assert late[2]["0"] == "returned"
    assert again[0] == "'2'"


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_a_host_that_fails_while_the_others_wait_for_it_in_jax_explains_the_end(project) -> None:
    [found] = said(project, "failing_in_jax")

    assert found[0] == "ValueError: the culprit"
    assert "on host 2" in found[1][0]
    assert found[2]["2"] == "exception"


NEEDS_JAX = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


@NEEDS_JAX
@pytest.mark.slow  # five jobs of two processes that import JAX
def test_whatever_ends_a_slice_its_hosts_tidy_up_although_jax_has_taken_sigterm(project) -> None:
    cancelled, late, raised, returned, early = said(project, "stopped")

    assert cancelled[0].startswith("JobCancelledError")
    assert cancelled[2] == {"0": "terminated", "1": "terminated"}
    assert "10 s" in late[0]
    assert "timeout" in late[2].values()  # The other one may be stopped before its own time is up.
    assert set(late[2].values()) <= {"timeout", "terminated"}
    assert raised[0] == "ValueError: the culprit"
    assert "on host 0" in raised[1][0]
    assert raised[2] == {"0": "exception", "1": "terminated"}
    assert returned[0] == "ValueError: the culprit"
    assert returned[2] == {"0": "returned", "1": "exception"}
    assert early[0] == "ValueError: the culprit"
    assert early[2] == {"0": "terminated", "1": "exception"}
    for _, _, _, messages, marks in (cancelled, late, raised, returned, early):
        assert not [message for message in messages if "killed" in message]
        assert {"0 tidied up", "1 tidied up"} <= set(marks)


@NEEDS_JAX
@pytest.mark.slow  # two processes that import JAX
def test_jax_sees_a_preemption_of_one_host_on_all_at_the_same_step(project) -> None:
    found, steps = said(project, "preempted")

    assert steps[0] == steps[1]
    assert steps[0].startswith("1 ")  # Whoever stops a job from outside means it: no other attempt.
    assert "SIGTERM came from outside" in found[0]
    assert "on host 1" in found[1][0]
    assert found[2] == {"0": "returned", "1": "terminated"}
