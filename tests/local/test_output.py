"""Output of functions, their streams, and the processes that they leave running, through real jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinetic.testing import eventually

Ends = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ends(shared_project: Any) -> Ends:
    """What came of each function in `projects/output.py`."""
    shared_project.copy("cases.py")
    shared_project.copy("output.py")
    found: Ends = shared_project.json("output.py")
    return found


def test_every_line_is_in_the_log_and_followed(ends: Ends) -> None:
    assert ends["many"]["followed"] == [str(number) for number in range(100_000)]
    assert ends["many"]["log"].splitlines() == ends["many"]["followed"]
    assert ends["bytes_of_any_kind"]["followed"][-1] == "no end"


def test_bytes_of_any_kind_are_in_the_log(ends: Ends) -> None:
    log, followed = ends["bytes_of_any_kind"]["log"], ends["bytes_of_any_kind"]["followed"]
    assert log.startswith("\x00\x01")
    assert "\né✓😀 \u2028 \x85 \x0c" in log
    assert "x" * 3_000_000 in "".join(followed)
    assert log.endswith("\n100%\nno end\n")  # As on a terminal.


def test_output_of_native_code_and_of_children_is_in_the_log(ends: Ends) -> None:
    assert ends["below_python"]["log"] == "from C\nfrom Python\nfrom the system\nout\nerr\n"


def test_functions_that_close_or_remove_what_they_were_given_end_as_usual(ends: Ends) -> None:
    assert ends["closed"]["text"] == "x"
    assert ends["descriptors_closed"]["value"] == 1
    assert ends["all_taken_away"]["value"] == 1
    assert ends["reads_input"]["raised"] == "EOFError"


def test_processes_that_a_function_leaves_running_neither_delay_its_end_nor_survive_it(
    ends: Ends,
) -> None:
    assert ends["pool"]["value"] == [1, 2]
    pids = [*ends["left_running"]["value"], ends["fork"]["value"]]
    assert min(pids) > 0
    assert not any("exit handlers took more than" in end["log"] for end in ends.values())
    eventually(lambda: not any(map(psutil.pid_exists, pids)))


BLOCKING = """
import kinetic, pathlib

@kinetic.run(accelerator="cpu")
def work():
    for number in range(2000):
        print("line é", number)
    return 42

if __name__ == "__main__":
    value = work()
    pathlib.Path("value").write_text(str(value))
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("streams", "encoding"),
    [
        ("> /dev/full 2>&1", "utf-8"),
        ("2>&1 | true", "utf-8"),
        ("<&- >&- 2>&-", "utf-8"),
        ("2>&1", "latin-1:strict"),
    ],
)
def test_a_value_is_returned_although_the_output_cannot_be_shown(
    project: Any, streams: str, encoding: str
) -> None:
    project.write("wörk.py", BLOCKING.replace("é", "é" if encoding == "utf-8" else "✓"))

    command = f"{sys.executable} wörk.py {streams}"
    project.execute("sh", "-c", command, PYTHONIOENCODING=encoding)

    assert (project.root / "value").read_text() == "42"
