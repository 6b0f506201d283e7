"""The stages of `.ci/run`: everything that must hold before a change lands. One line a stage, with its time.

Needs Python >= 3.11 with pip, and a package index. `.ci/run NAME ...` runs the stages whose name
begins so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".tools" / "bin" / "uv"
LOG = ROOT / "dist" / "ci-logs"
PACKAGES = (
    "kinetic-payload",
    "kinetic-images",
    "kinetic-k8s",
    "kinetic-runner",
    "kinetic",
    "kinetic-cli",
)
OTHER_PYTHONS = ("3.12", "3.13")


def main(wanted: list[str]) -> int:
    """Run the stages whose names begin with one of `wanted`, or all; return the exit code."""
    os.chdir(ROOT)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    LOG.mkdir(parents=True)
    started = time.monotonic()
    failed = [
        name
        for name, stage in stages().items()
        if (not wanted or any(name.startswith(w) for w in wanted)) and not passes(name, stage)
    ]
    print(
        f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'} ({time.monotonic() - started:.0f} s)"
    )
    return 1 if failed else 0


def stages() -> dict[str, list[str]]:
    """Return the stages as shell commands, in order."""
    quickstart, tests = readme_commands()
    uv_run = f"{UV} run --no-sync"
    alone = {
        f"alone {name}": [f"{sys.executable} {ROOT}/.ci/alone.py {name} {UV}"] for name in PACKAGES
    }
    others = {
        f"python {version}": [f"{sys.executable} {ROOT}/.ci/alone.py --python {version} {UV}"]
        for version in OTHER_PYTHONS
    }
    return {
        "tests (README)": [tests],
        "quickstart (README)": [quickstart],
        "format": [f"{uv_run} ruff format --check ."],
        "lint": [f"{uv_run} ruff check ."],
        "types": [f"{uv_run} mypy packages dev"],
        "imports": [f"{uv_run} lint-imports"],
        "hygiene": [f"{uv_run} python .ci/hygiene.py"],
        "build": [f"{UV} build --all-packages --wheel --out-dir dist -q"],
        **alone,
        **others,
    }


def readme_commands() -> list[str]:
    """Return the two commands with which the README begins: they are what a stranger types."""
    block = re.search(
        r"```(?:sh|bash|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block, "README.md has no code block"
    commands = [line for line in block.group(1).splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2, f"README.md begins with {len(commands)} commands instead of two"
    return commands


def passes(name: str, commands: list[str]) -> bool:
    """Run one stage; print its line, and what it said if it failed."""
    log = LOG / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower())}.log"
    started = time.monotonic()
    with log.open("wb") as stream:
        code = next(
            (
                code
                for command in commands
                if (
                    code := subprocess.call(
                        command,
                        shell=True,
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                    )
                )
            ),
            0,
        )
    text = log.read_text(errors="replace").strip()
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    print(
        f"{'ok    ' if code == 0 else 'FAILED'} {time.monotonic() - started:6.1f} s  {name:24s} {last[-90:]}",
        flush=True,
    )
    if code:
        print(text[-20000:], flush=True)
    return code == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
