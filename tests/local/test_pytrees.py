"""Classes that JAX and other libraries know, defined in the entry script: the same in a job as here."""

from __future__ import annotations


def test_classes_that_libraries_know_are_the_same_in_a_job(project) -> None:
    project.copy("pytrees")

    here, there = project.json("main.py")

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
