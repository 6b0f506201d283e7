"""The facade as a type checker sees it: a user's file under `mypy --strict`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kinetic
import kinetic_payload

USER = Path(__file__).parent / "projects" / "user.py"

WRONG = {
    'train("fast")': "arg-type",
    "train(0.1, rate=2)": "call-arg",
    "train.run_async()": "call-arg",
    "train.run_async_map(0.1)": "arg-type",
    'Trainer().fit("x")': "arg-type",
    'Trainer().fit.run_async(x="y")': "arg-type",
    "kinetic.run(accelerators='cpu')": "call-arg",
    "kinetic.run_all": "attr-defined",
}


def test_editors_see_the_users_own_signature(tmp_path: Path) -> None:
    user = USER.read_text()
    good = user.count("\n") + 1
    (tmp_path / "user.py").write_text(user + "".join(f"{line}\n" for line in WRONG))
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports_for_stubs = True\n")
    sources = [str(Path(m.__file__ or "").parent.parent) for m in (kinetic, kinetic_payload)]

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--show-error-codes", "--no-error-summary", "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.pathsep.join(sources)},  # noqa: TID251 - for a child
        capture_output=True,
        text=True,
    )

    found = [line for line in done.stdout.splitlines() if line.startswith("user.py:")]
    errors = [line for line in found if ": error:" in line]
    assert [
        (int(line.split(":")[1]) - good, line.rsplit("[", 1)[1].rstrip("]")) for line in errors
    ] == list(enumerate(WRONG.values())), done.stdout + done.stderr
