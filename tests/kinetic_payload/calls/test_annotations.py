"""Annotations that were not computed before the call: a job gets the same values as the client.

Each script's `facts` is called as it is and shipped, and must return the same both times.
"""

import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="Until Python 3.13 annotations are computed at once"
)

LIBRARIES = ("attrs", "equinox", "flax", "jax", "pydantic")


@pytest.mark.parametrize("script", ["functions.py", "classes.py", "libraries.py"])
def test_annotations_are_as_lazy_in_a_job_as_here(project, script):
    if script == "libraries.py" and not all(map(find_spec, LIBRARIES)):
        pytest.skip(f"It needs {', '.join(LIBRARIES)}")
    project.copy("annotations")

    assert project.run(script) == "True"


def test_undefined_names_in_annotations_do_not_hide_a_value_or_the_cause_of_an_error(project):
    script = """
    import annotationlib, threading
    from annotationlib import Format
    from shown import shown
    LOCK = threading.Lock()
    def locked(x: Only):
        return LOCK
    def make():
        def inner(x: Only) -> Nowhere: return x + 1
        class Local:
            x: Only
            y: int
            def m(self, other: Local) -> Only: return 5
        return inner, Local

    if __name__ == "__main__":
        from shipping import ship
        inner, local = ship(make)
        print(inner(1), local().m(2), shown(inner, Format.STRING), shown(local, Format.STRING))
        print(annotationlib.get_annotations(local.m, format=Format.FORWARDREF)["other"] is local)
        try:
            ship(locked, 1)
        except Exception as error:
            print("global 'LOCK'" in str(error))
    """
    project.copy("annotations/shown.py")
    project.write("train.py", script)

    assert project.run("train.py").splitlines() == [
        "2 5 {'x': 'Only', 'return': 'Nowhere'} {'x': 'Only', 'y': 'int'}",
        "True",
        "True",
    ]
