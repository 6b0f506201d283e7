"""Jobs that another process ends in the moment in which they are started."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("act", "expected"),
    [("cancel", "JobCancelledError False\nTrue 1\n"), ("clean up", "SubmitError True\nFalse 0\n")],
)
def test_a_job_that_is_ended_while_it_starts_does_not_run(project, act: str, expected: str) -> None:
    project.copy("disturbed.py")

    assert project.output("disturbed.py", act) == expected
    assert not (project.root / "ran").exists()
