"""The example in the README."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "packages" / "kinetic-cli" / "README.md"
EXAMPLES = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warm: Callable[[Path], Path],
) -> None:
    monkeypatch.setenv("KINETIC_HOME", str(warm(tmp_path / "home")))
    kinetic = f'kinetic() {{ "{sys.executable}" -m kinetic_cli "$@"; }}\n'

    ran = subprocess.run(
        ["sh", "-eu", "-c", kinetic + example], cwd=tmp_path, capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stderr
