"""Classes that JAX and other libraries know, defined in the entry script: the same in a job as here."""

from __future__ import annotations

import pytest


@pytest.mark.slow  # a script and its job import JAX, Flax and Equinox
def test_classes_that_libraries_know_are_the_same_in_a_job_or_refused_by_name(project) -> None:
    project.copy("pytrees")

    here, there, refusal = project.json("main.py")

    assert len(here) == 46
    assert there == here
    assert "The class Refused of __main__ cannot be pickled by value: it is a pytree of JAX" in (
        refusal
    )
    assert "Move the class into a module of the project" in refusal
    assert list((project.home / "jobs").glob("*")) == []
