"""What the tests of all packages share: how processes begin, and the READMEs' examples."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "packages"


def pytest_configure() -> None:
    """Let signals do what they do: who runs the tests in the background has them ignored, and so
    would every process that a test starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def run_readme(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], None]:
    """Return what runs the Python example of the README of the package whose test asks.

    It runs as a script in an empty folder, in a process of its own, and must print what stands
    behind `# →`, in that order.
    """
    distribution = request.path.parent.name.replace("_", "-")
    readme = (PACKAGES / distribution / "README.md").read_text(encoding="utf-8")

    def run() -> None:
        examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        assert len(examples) == 1, "one example that shows the package alone"
        script = tmp_path / "example.py"
        script.write_text(examples[0], encoding="utf-8")
        environ = os.environ.items()  # noqa: TID251 - a child's begins with ours
        kept = {k: v for k, v in environ if not k.startswith("KINETIC_")}
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={**kept, "KINETIC_HOME": str(tmp_path / "home"), "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = iter(done.stdout.splitlines())
        for expected in re.findall(r"# → (.*)$", examples[0], re.MULTILINE):
            assert expected in lines, f"{expected!r} is not (or too late) in:\n{done.stdout}"

    return run
