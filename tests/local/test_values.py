"""Whatever a function returns, raises or dies of: what comes home, through real jobs.

Each test submits all its cases at once from one script, which prints what came of them as JSON.
"""

from __future__ import annotations

import json
from typing import Any


def ends(project: Any, cases: str) -> dict[str, dict[str, Any]]:
    project.copy("values")
    printed = project.output(cases)
    found: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def test_values_come_home_and_what_cannot_is_named(project) -> None:
    said = ends(project, "returned.py")

    assert said["nothing"]["value"] == "None"
    assert said["own"]["value"] == "Own"
    assert said["its_class"]["value"] == "<class '__main__.Own'>"
    assert said["text"]["value"].startswith("'xxx")
    assert said["half_a_pair"]["value"] == "'a\\udcffb'"
    assert said["function"]["value"] == "<built-in function len>"
    assert {name: end["raised"] for name, end in said.items() if "raised" in end} == {
        "generator": "JobFailedError",
        "deep_down": "JobFailedError",
        "coroutine": "AwaitableResultError",
        "too_deep": "JobFailedError",
    }
    assert "value is a generator" in said["generator"]["said"]
    assert "Pass a list of its items" in said["generator"]["notes"][0]
    assert "value['a'][1]['lock'] is a _thread.lock" in said["deep_down"]["said"]
    assert "asyncio.run" in said["coroutine"]["said"]
    assert "nested too deeply" in said["too_deep"]["notes"][0]


def test_exceptions_come_home_as_themselves_or_as_text(project) -> None:
    said = ends(project, "raised.py")

    assert {name: end["raised"] for name, end in said.items()} == {
        "needs": "Needs",
        "with_lock": "RemoteError",
        "unloadable": "RemoteError",
        "speechless": "Speechless",
        "group": "ExceptionGroup",
        "chained": "ValueError",
        "half_a_pair": "ValueError",
        "markup": "ValueError",
        "stop_iteration": "StopIteration",
        "recursion": "RecursionError",
        "memory": "MemoryError",
    }
    for name, end in said.items():
        assert f"in {name}" in "\n".join(end["notes"]), end
    assert "__main__.WithLock: held" in said["with_lock"]["said"]
    assert "__main__.Unloadable: hm" in said["unloadable"]["said"]
    assert "Needs: 4: x" in "\n".join(said["group"]["notes"])
    assert said["chained"]["notes"][0] == "a note of mine"
    assert "ZeroDivisionError" in said["chained"]["notes"][1]
    assert said["half_a_pair"]["said"] == "bad \udcff name"
    assert said["markup"]["said"] == "[red]not markup[/red] [/x] \x1b[31m"


def test_ways_to_leave_without_an_exception_are_told_apart(project) -> None:
    said = ends(project, "left.py")

    assert said["zero"] == said["none"] == {"value": "None"}
    assert "sys.exit(3)" in said["three"]["said"]
    assert "sys.exit: no such file" in said["words"]["said"]
    # It must not look like a Ctrl-C of whoever collects it.
    assert said["interrupt"]["raised"] == "RemoteError"
    assert "exit code 7" in said["at_once"]["said"]
    assert "SIGSEGV" in said["segfault"]["said"]
    assert "SIGABRT" in said["abort"]["said"]
    assert "SIGKILL" in said["killed"]["said"]
    assert "SIGTERM" in said["told"]["said"]


def test_an_exception_whose_class_is_missing_here_is_told_in_full(project) -> None:
    project.write("elsewhere.py", "class Odd(Exception):\n    pass\n")
    printed = project.script("""
        import os, sys
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            from elsewhere import Odd
            raise Odd("only there")

        if __name__ == "__main__":
            job = work.run_async()
            sys.modules["elsewhere"] = None
            try:
                job.result(timeout=100)
            except kinetic.RemoteError as error:
                print(error.remote_type, "|", error.remote_message, "|", isinstance(error, RuntimeError))
                print("raise Odd" in error.remote_traceback, error.job_id == job.job_id)
    """)

    assert printed.splitlines() == ["elsewhere.Odd | only there | True", "True True"]


def test_a_large_value_is_held_once_here_and_once_there(project) -> None:
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

    said = dict(line.split() for line in printed.splitlines())
    assert said["length"] == "200000000"
    assert float(said["grew"]) < 50
    assert float(said["here"]) < 300


def test_a_job_may_open_more_files_than_the_shell_that_submits_it(project) -> None:
    printed = project.script("""
        import resource
        import kinetic

        @kinetic.run(accelerator="cpu")
        def limits():
            return resource.getrlimit(resource.RLIMIT_NOFILE)

        if __name__ == "__main__":
            for hard in (9000, 700):
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
                print(*limits())
    """)

    assert printed.splitlines() == ["9000 9000", "700 700"]


def test_large_arguments_are_measured_and_arrive(project) -> None:
    project.write(
        "main.py",
        """
        import pickle
        import kinetic

        class Array:
            # As arrays do, it hands its memory over in one piece.
            def __init__(self, data): self.data = bytearray(data)
            def __reduce_ex__(self, protocol): return Array, (pickle.PickleBuffer(self.data),)

        @kinetic.run(accelerator="cpu")
        def work(array):
            return len(array.data)

        if __name__ == "__main__":
            print(work.run_async(Array(bytes(60_000_000))).result())
    """,
    )
    done = project.run("main.py")

    assert done.stdout == "60000000\n", done.stderr
    assert "UserWarning: The call of work pickles to 60.0 MB" in done.stderr
    assert "main.py:15: UserWarning" in done.stderr
