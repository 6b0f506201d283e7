"""Names that stand only in annotations, as text, are found in a job; code without its file keeps its own lines."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinetic_payload.calls.code import keep_lines, lines_of


def test_annotations_have_the_same_meaning_in_a_job(project):
    project.copy("names_in_annotations")

    assert project.run("run.py").splitlines() == [
        "True <class '__main__.Shape'> True",
        "name 'Unpicklable' is not defined True False False True",
    ]


def test_a_package_that_only_annotations_name_may_be_missing_in_a_job(project):
    project.write("../outside/lib/frames.py", "class Frame: pass")
    project.write("../outside/lib/frames-1.dist-info/METADATA", "")
    project.write_all("""
        # run.py
        from __future__ import annotations
        import typing
        import frames
        from frames import Frame
        from shipping import ship

        class Mine(Frame): pass

        def main(x: Frame, y: typing.Any, z: Mine) -> frames.Frame:
            try:
                return typing.get_type_hints(main)
            except NameError as error:
                return str(error)
        print(ship(main, 1, 2, 3))
    """)

    printed = project.run("run.py", on_path=(project.outside / "lib",))

    assert printed == "name 'Frame' is not defined"


CELL = """\
TOKEN = "secret"

def fail(x):
    return (
        [1 for one in x if one()],
    )

def other(): raise ValueError("other")
"""


@pytest.fixture
def cell() -> Iterator[dict[str, Any]]:
    name = "/tmp/ipykernel_0/of-this-test.py"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(CELL, name, "exec"), namespace)
    yield namespace
    linecache.cache.pop(name, None)


def elsewhere(*functions: Callable[..., Any]) -> None:
    """Do what happens to the lines of *functions* on their way to another process."""
    lines = [(function.__code__, lines_of(function.__code__)) for function in functions]
    linecache.cache.pop(functions[0].__code__.co_filename)
    for code, text in lines:
        keep_lines(code, text)


def test_only_the_lines_of_the_function_travel(cell) -> None:
    text = lines_of(cell["fail"].__code__)

    assert text == "".join(CELL.splitlines(keepends=True)[2:6])
    assert lines_of(compile("x = 1", "<string>", "exec")) == ""


@pytest.mark.parametrize("order", [("fail", "other"), ("other", "fail")])
def test_tracebacks_and_inspect_show_the_lines_of_several_functions_of_a_cell(cell, order) -> None:
    elsewhere(*(cell[name] for name in order))

    with pytest.raises(ValueError, match="other") as caught:
        cell["fail"]([cell["other"]])

    text = "".join(traceback.format_exception(caught.value))
    assert "[1 for one in x if one()]," in text
    assert 'def other(): raise ValueError("other")' in text
    assert inspect.getsource(cell["fail"]).startswith("def fail(x):\n    return (\n")
