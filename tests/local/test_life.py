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
