"""The debug server of a job. Editors that attach to it are in `tests/local/test_debugging.py`."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_runner.child.debugger import Listening, listening_in, listening_line


def test_the_line_with_the_address_is_read_back() -> None:
    where = Listening(5678, '/somewhere/a "b" ü\n\udcff', "sub/folder")

    assert listening_in(listening_line(where) + "\n") == where
    assert "\n" not in listening_line(where)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[kinetic] debugpy is listening on 0.0.0.0:1 {}",
        "[kinetic] debugpy is listening on 127.0.0.1:1",
        listening_line(Listening(1, "/x")) + "x",
        '[kinetic] debugpy is listening on 127.0.0.1:1 {"project": "/x", "folder": 7}',
        '[kinetic] debugpy is listening on 127.0.0.1:1 {"project": null}',
        "[kinetic] debugpy is listening on 127.0.0.1:1 []",
        listening_line(Listening(70000, "/x")),
    ],
)
def test_other_lines_contain_no_address(line: str) -> None:
    assert listening_in(line) is None


@pytest.mark.skipif(importlib.util.find_spec("debugpy") is None, reason="debugpy is an extra")
def test_it_listens_on_loopback_only_and_a_requested_stop_ends_the_wait() -> None:
    code = (
        "import os; from pathlib import Path; from kinetic_runner.child import debugger\n"
        "port = debugger.listen(0, '/x')\n"
        "lines = Path('/proc/net/tcp').read_text() + Path('/proc/net/tcp6').read_text()\n"
        "rows = [line.split() for line in lines.splitlines()]\n"
        "print({row[1] for row in rows if row[1].endswith(f':{port:04X}') and row[3] == '0A'})\n"
        "print(debugger.wait_for_client(lambda: True), flush=True)\n"
        "os._exit(0)"
    )
    if not Path("/proc/net/tcp6").exists():
        pytest.skip("the addresses of a server are not to be seen here")

    done = subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True)

    where, *listening, waits = done.stdout.splitlines()
    found = listening_in(where)
    assert found is not None, done
    assert listening == [f"{{'0100007F:{found.port:04X}'}}"]
    assert waits == "False"
