"""Values, exceptions and exits of functions, through real jobs of one script."""

from __future__ import annotations

from typing import Any

import pytest

Ends = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ends(shared_project: Any) -> Ends:
    """What came of each function in `projects/values.py`."""
    shared_project.copy("cases.py")
    shared_project.copy("values.py")
    shared_project.write("elsewhere.py", "class Odd(Exception):\n    pass\n")
    found: Ends = shared_project.json("values.py")
    return found


def test_values_are_returned_and_unpicklable_ones_are_named(ends: Ends) -> None:
    assert ends["own"]["value"] == "Own"
    assert ends["text"]["value"] == "a\udcffb" + "x" * 3_000_000
    assert ends["unpicklable"]["raised"] == "NoValueError"
    assert "value['a'][1]['lock'] is a _thread.lock" in ends["unpicklable"]["text"]
    assert ends["coroutine"]["raised"] == "AwaitableResultError"
    assert "asyncio.run" in ends["coroutine"]["text"]


def test_exceptions_are_raised_as_themselves_or_as_text(ends: Ends) -> None:
    raised = {name: end.get("raised") for name, end in ends.items()}
    assert (raised["needs"], ends["needs"]["text"]) == ("Needs", "3: so")
    assert "Remote traceback" in "\n".join(ends["needs"]["notes"])
    assert "in needs" in "\n".join(ends["needs"]["notes"])
    assert raised["with_lock"] == "RemoteError"
    assert "__main__.WithLock: held" in ends["with_lock"]["text"]
    assert raised["speechless"] == "Speechless"
    assert raised["chained"] == "ExceptionGroup"
    assert ends["chained"]["text"] == "[red] \udcff (1 sub-exception)"
    assert ends["chained"]["notes"][0] == "a note of mine"
    assert "Needs: 4: x" in ends["chained"]["notes"][1]
    assert "ZeroDivisionError" in ends["chained"]["notes"][1]


def test_an_exception_whose_class_is_missing_here_is_text_with_its_traceback(ends: Ends) -> None:
    assert ends["only_there"]["raised"] == "RemoteError"
    assert "elsewhere.Odd: only there" in ends["only_there"]["text"]
    assert "raise Odd" in "\n".join(ends["only_there"]["notes"])


def test_ends_without_a_value_are_told_apart(ends: Ends) -> None:
    assert "sys.exit: no such file" in ends["left"]["text"]
    # It must not look like a Ctrl-C in the process that collects it.
    assert ends["interrupt"]["raised"] == "RemoteError"
    assert "SIGKILL" in ends["killed"]["text"]
    assert "SIGTERM" in ends["terminated"]["text"]


def test_classes_with_decorated_methods_can_be_returned_as_they_can_be_sent(project: Any) -> None:
    project.copy("decorated.py")

    done = project.run("decorated.py")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "on purpose"


def test_settings_of_jax_and_logging_hold_in_the_job(project: Any) -> None:
    project.copy("settings.py")

    done = project.run("settings.py")

    # Without the setting, JAX adds 32-bit numbers: 15.0858736038208.
    assert done.stdout.strip() == "15.085873653425732 True", done.stderr


def test_a_job_may_open_more_files_than_the_shell_that_submits_it(ends: Ends) -> None:
    assert ends["limits"]["value"] == [9000, 9000]


def test_a_large_value_is_held_once_here_and_once_in_the_job(project: Any) -> None:
    printed = project.script("""
        import resource, sys
        import kinetic

        def peak():
            unit = 1 if sys.platform == "darwin" else 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6

        @kinetic.run(accelerator="cpu")
        def work():
            import atexit
            value = b"x" * 200_000_000
            before = peak()
            atexit.register(lambda: print("grew", peak() - before))
            return value

        if __name__ == "__main__":
            before = peak()
            print("length", len(work()))
            print("here", peak() - before)
    """)

    measured = dict(line.split() for line in printed.splitlines())
    assert measured["length"] == "200000000"
    assert float(measured["grew"]) < 50
    assert float(measured["here"]) < 300
