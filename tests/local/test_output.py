"""What functions print, and what they leave running, through real jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinetic.testing import eventually


def ends(project: Any, cases: str) -> dict[str, dict[str, Any]]:
    project.copy("output")
    printed = project.output(cases)
    found: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def test_every_way_to_write_reaches_the_log_and_its_followers_whole(project) -> None:
    said = ends(project, "written.py")

    many = said["many"]["followed"]
    assert many == [str(number) for number in range(100_000)]
    assert said["many"]["log"].splitlines() == many
    assert said["binary"]["log"].startswith("\x00\x01")
    assert said["no_end"]["log"] == "no newline\n"
    assert said["no_end"]["followed"] == ["no newline"]
    assert said["no_end_and_an_error"]["log"].endswith("ValueError: after it\n")
    assert said["logging_module"]["log"] == "INFO:root:[info] hello [/x]\n"
    assert said["bar"]["log"] == "\r0%\r25%\r50%\r75%\r100%\n"
    assert said["below_python"]["log"] == "from C\nfrom Python\nfrom the system\n"
    assert said["from_a_child"]["log"] == "out\nerr\n"
    assert "".join(said["one_long_line"]["followed"]) == "x" * 3_000_000
    assert said["unicode"]["followed"][0].startswith("é✓😀 \u2028 \x85 \x0c")


def test_a_terminal_that_cannot_show_a_character_sees_an_escape(project) -> None:
    printed = project.script(
        """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            print("é")

        if __name__ == "__main__":
            job = work.run_async()
            job.logs(follow=True)
            job.result(stream_logs=True)
            work()
    """,
        PYTHONIOENCODING="ascii",
    )

    assert printed == "\\xe9\n" * 3


def test_streams_that_user_code_closed_or_took_away_cost_nothing(project) -> None:
    said = ends(project, "closed.py")

    assert {name: end["value"] for name, end in said.items()} == {
        "closed": 1,
        "closed_and_an_error": "ValueError('x')",
        "descriptors_closed": 1,
        "taken_away": 1,
        "reads_input": "EOFError('EOF when reading a line')",
        "environment_cleared": 1,
        "folder_removed": 1,
    }


def test_what_a_function_leaves_running_neither_holds_up_its_end_nor_survives_it(
    project,
) -> None:
    said = ends(project, "left_running.py")

    assert said.pop("pool")["value"] == [1, 2]
    assert all(end["value"] > 0 for end in said.values()), said
    assert not any("exit handlers took more than" in end["log"] for end in said.values())
    eventually(lambda: not any(psutil.pid_exists(end["value"]) for end in said.values()))


BLOCKING = """
import kinetic, pathlib, sys

@kinetic.run(accelerator="cpu")
def work():
    for number in range(2000):
        print("line", number)
    return 42

if __name__ == "__main__":
    value = work()
    pathlib.Path("value").write_text(str(value))
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("streams", "encoding"),
    [
        ("2> /dev/full", "utf-8"),
        ("> /dev/full", "utf-8"),
        ("> /dev/full 2>&1", "utf-8"),
        (">&-", "utf-8"),
        ("2>&-", "utf-8"),
        ("2>&1 | true", "utf-8"),
        ("2>&1", "latin-1:strict"),
    ],
)
def test_a_value_comes_home_also_where_nobody_hears_of_the_job(
    project, streams: str, encoding: str
) -> None:
    project.write("wörk.py", BLOCKING)

    subprocess.run(
        ["sh", "-c", f"{sys.executable} wörk.py {streams}"],
        cwd=project.root,
        env={**project.environment, "PYTHONIOENCODING": encoding},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    assert (project.root / "value").read_text() == "42"
