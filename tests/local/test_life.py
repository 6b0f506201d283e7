"""Local jobs of a script as a user sees them: processes of their own, nothing patched."""

from __future__ import annotations

import json
from typing import Any


def test_calls_of_a_script_return_values_print_logs_and_raise_its_own_exceptions(
    project: Any,
) -> None:
    project.copy("life.py")
    project.write("set/one.txt", "one")
    project.write(
        "helper.py",
        """
        import threading
        import kinetic
        LOCK = threading.Lock()  # It cannot be pickled.

        @kinetic.run(accelerator="cpu")
        def locked(x):
            with LOCK:
                print("working on", x)
                return 2 * x, __name__
        """,
    )

    printed = project.output("life.py", MINE_A="a", ONE="1", OTHER="x")

    *lines, last = printed.splitlines()
    assert lines[:2] == ["working on 21", "value (42, 'helper')"]
    (text, b, notes), attempt, variables = json.loads(last)
    assert (text, b) == ("1 and 2", 2)
    assert "Remote traceback" in notes
    assert "raise Sad(1, 2)" in notes
    assert "phase 'call' of attempt 1 on host 0" in notes
    assert variables == {
        "MINE_A": "a",
        "ONE": "1",
        "OTHER": None,
        "JAX_PLATFORMS": "cpu",
        "KINETIC_HOST_INDEX": "0",
    }
    # The second attempt began afresh, and nothing of the first one's files is left.
    assert attempt == "2"
    (folder,) = (one.parents[1] for one in (project.home / "jobs").glob("*/attempt-2/host-0.log"))
    assert len(list(folder.rglob("trace"))) == 1
    assert len(list(folder.rglob("one.txt"))) == 1
    assert (folder / "attempt-1" / "host-0.log").exists()


FAILING = """
    import sys
    import kinetic

    @kinetic.run(accelerator="cpu", backend="local")
    def fails(x):
        print("begun")
        raise ValueError(f"bad {x}")

    @kinetic.run(accelerator="cpu", backend="local")
    def leaves():
        sys.exit("no more")

    if sys.argv[1] == "refused":
        kinetic.run(accelerator="cpu", timeout=-1)
    fails(3) if sys.argv[1] == "fails" else leaves()
"""


def test_an_uncaught_error_shows_one_traceback_with_the_users_own_files_and_lines(
    project: Any,
) -> None:
    script = project.write("main.py", FAILING)
    call = f'File "{script}", line 16, in <module>'
    line = f'File "{script}", line 8, in fails'

    failed = project.run("main.py", "fails")
    assert failed.stdout == "begun\n"
    assert [failed.stderr.count(each) for each in ("ValueError: bad 3\n", call, line)] == [2, 1, 1]
    assert failed.stderr.count("File ") == 2

    whole = project.run("main.py", "fails", KINETIC_TRACEBACK="full", KINETIC_PROGRESS="off")
    assert whole.stderr.count("ValueError: bad 3\n") > 2
    assert "kinetic/decorator.py" in whole.stderr
    assert "kinetic: " not in whole.stderr

    left = project.run("main.py", "leaves")
    assert "\nno more\n" in left.stderr
    assert "NoValueError: Job cpu-leaves-" in left.stderr
    assert left.stderr.count("File ") == 1

    refused = project.run("main.py", "refused")
    assert refused.stderr.count("File ") == 1
    assert "timeout=-1 is not a duration." in refused.stderr
