"""`BackendContract`: the tests that every backend passes, and launches of jobs over a stand-in for the runner."""

from kinetic.testing.launches import (
    BackendBasics,
    BackendContract,
    a_launch,
    await_outcome,
    eventually,
    fake_runner_source,
    job_ids_of,
    kill_hard,
    outcome_of,
)

__all__ = [
    "BackendBasics",
    "BackendContract",
    "a_launch",
    "await_outcome",
    "eventually",
    "fake_runner_source",
    "job_ids_of",
    "kill_hard",
    "outcome_of",
]
