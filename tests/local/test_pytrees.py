"""Classes that JAX and other libraries know, defined in the entry script: the same in a job as here.

The script prints what it finds of them, run as plain Python and as a job. Both must print the same.
"""

from __future__ import annotations


def test_classes_that_libraries_know_are_in_a_job_what_they_are_here(project) -> None:
    project.copy("pytrees")

    here = project.output("main.py", "here").splitlines()
    there = project.output("main.py").splitlines()

    assert len(here) == 46
    assert there == here


def test_a_class_whose_registration_cannot_travel_is_refused_by_name(project) -> None:
    project.copy("pytrees/refused.py")

    printed = project.output("refused.py")

    assert (
        "The class Paths of __main__ cannot be pickled by value: it is a pytree of JAX" in printed
    )
    assert "Move the class into a module of the project" in printed
    assert list((project.home / "jobs").glob("*")) == []
