"""The facade as type checkers see it: a user's file under `mypy --strict` and pyright."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kinetic
import kinetic_payload

USER = (Path(__file__).parent / "projects" / "user.py").read_text()

MYPY = """
[mypy]
strict = True
follow_imports_for_stubs = True
# No type of theirs is in the facade, and to read them takes most of the time.
[mypy-IPython.*,google.*,numpy.*,requests.*,rich.*,urllib3.*]
follow_imports = skip
"""
WRONG = {
    'train("fast")': ("arg-type", "reportArgumentType"),
    "train(0.1, rate=2)": ("call-arg", "reportCallIssue"),
    "train.run_async()": ("call-arg", "reportCallIssue"),
    "train.run_async_map(0.1)": ("arg-type", "reportArgumentType"),
    'Trainer().fit("x")': ("arg-type", "reportArgumentType"),
    'Trainer().fit.run_async(x="y")': ("arg-type", "reportArgumentType"),
    "train(Data('.'))": ("arg-type", "reportArgumentType"),
    "train.run_async(0.1).result().nothing": ("attr-defined", "reportAttributeAccessIssue"),
    "number: int = train.run_async(0.1).result()": ("assignment", "reportAssignmentType"),
    "kinetic.run(accelerators='cpu')": ("call-arg", "reportCallIssue"),
    "kinetic.run_all": ("attr-defined", "reportAttributeAccessIssue"),
}


def mypy(folder: Path, sources: list[str]) -> list[tuple[int, str]]:
    """Return the lines of `user.py` with an error, and its code."""
    (folder / "mypy.ini").write_text(MYPY)
    variables = {**os.environ, "MYPYPATH": os.pathsep.join(sources)}  # noqa: TID251 - for a child
    words = ["mypy", "--show-error-codes", "--no-error-summary", "user.py"]
    found = run(words, folder, variables).splitlines()
    errors = [line for line in found if line.startswith("user.py:") and ": error:" in line]
    return [(int(line.split(":")[1]), line.rsplit("[", 1)[1].rstrip("]")) for line in errors]


def pyright(folder: Path, sources: list[str]) -> list[tuple[int, str]]:
    """Return the lines of `user.py` with an error, and its rule."""
    config = {"typeCheckingMode": "standard", "extraPaths": sources, "include": ["user.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    found = run(["basedpyright", "--outputjson", "--pythonpath", sys.executable], folder)
    errors: list[Any] = json.loads(found)["generalDiagnostics"]
    return [
        (each["range"]["start"]["line"] + 1, each.get("rule", each["message"]))
        for each in errors
        if each["severity"] == "error"
    ]


def run(words: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=False
    ).stdout


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_editors_see_the_users_own_types(checker: Any, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER + "".join(f"{line}\n" for line in WRONG))
    sources = [str(Path(m.__file__ or "").parent.parent) for m in (kinetic, kinetic_payload)]

    errors = checker(tmp_path, sources)

    first, code = USER.count("\n") + 1, [mypy, pyright].index(checker)
    assert errors == [(first + at, codes[code]) for at, codes in enumerate(WRONG.values())]
