"""Classes of the entry script: a function finds the same attributes of them on the client and in a job.

Each script's `facts` is called as it is and shipped, and must return the same both times.
"""

from importlib.util import find_spec

import pytest

SCRIPTS = [
    ("classes", 353),
    ("enums.py", 100),
    ("enums_and_their_members.py", 8),
    ("hooks", 5),
    ("structs.py", 3),
    ("copied.py", 3),
]


@pytest.mark.parametrize(("script", "facts"), SCRIPTS)
def test_classes_of_a_script_are_the_same_in_a_job(project, script: str, facts: int) -> None:
    project.copy(script)

    assert project.run(script if "." in script else "run.py") == f"{facts} facts"


@pytest.mark.timeout(400)  # Two processes import JAX.
@pytest.mark.skipif(find_spec("equinox") is None, reason="Equinox is not installed")
def test_pytrees_of_a_script_are_the_same_in_a_job_or_refused(project):
    project.copy("pytrees")

    facts, keyed, called, device = project.run("run.py").splitlines()

    assert facts == "5 facts True"
    for outcome in (keyed, called):
        assert outcome == "kept" or "JAX does not show each" in outcome
    assert "['mesh'][0]" in device
    assert "devices, and objects on them, belong" in device


def test_returned_members_of_an_enum_are_the_clients_own(project):
    project.copy("enums.py")

    assert project.run("enums.py", "home") == "True True True\nTrue True 5.976e+24 3 (1, 2)"


def test_pydantic_models_of_the_script_travel_and_parametrised_ones_are_refused(project):
    pytest.importorskip("pydantic")
    project.copy("models.py")

    facts, refusal = project.run("models.py").splitlines()[:2]

    assert facts == "2 facts"
    assert refusal.startswith("The class Box[int] of __main__ cannot be pickled by value")


def test_a_class_that_cannot_be_rebuilt_is_refused_by_name(project) -> None:
    project.copy("classes/shapes.py")
    project.copy("refused.py")

    equal, computed, hint = project.run("refused.py").splitlines()

    prefix = "of __main__ cannot be pickled by value:"
    assert equal.startswith(f"The class Two {prefix} its metaclass")
    assert computed.startswith(f"The class Keyed {prefix} the value of the keyword 'key'")
    assert hint == "Move the class into a module of the project, and import it from there."


def test_classes_made_in_a_job_are_returned_unchanged(project):
    project.copy("classes/shapes.py")
    project.copy("made_in_a_job.py")

    assert project.run("made_in_a_job.py").splitlines() == [
        "8 True True []",
        "Item(x=4) True 3 True",
        "main.<locals>.Data(x=1) False True",
        "True {'home': ['key']}",
    ]
