"""The stages of `.ci/run`: everything that must hold before a change lands. One line a stage, with its time.

Needs Python >= 3.11 with pip, and a package index. `.ci/run NAME ...` runs the stages whose name
begins so.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".tools" / "bin" / "uv"
LOG = ROOT / "dist" / "ci-logs"
PACKAGES = (
    "kinetic-payload",
    "kinetic-runner",
    "kinetic",
    "kinetic-cli",
    "kinetic-images",
    "kinetic-k8s",
)
OTHER_PYTHONS = ("3.12", "3.13")
PATIENCE = {
    "PIP_RETRIES": "10",
    "PIP_TIMEOUT": "60",
    "UV_HTTP_RETRIES": "10",
    "UV_HTTP_TIMEOUT": "120",
    "UV_LOCK_TIMEOUT": "1800",
    "UV_COMPILE_BYTECODE_TIMEOUT": "600",
}
"""With a package index that stutters, a stage that installs what another waits for, a slow machine."""


running: set[subprocess.Popen[bytes]] = set()


def main(wanted: list[str]) -> int:
    """Run the stages whose names begin with one of `wanted`, or all; return the exit code."""
    os.chdir(ROOT)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    LOG.mkdir(parents=True, exist_ok=True)  # A run that was killed may still write there.
    started = time.monotonic()
    failed = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor(2) as pool:
        try:
            for together in stages():
                names = [n for n in together if not wanted or n.startswith(tuple(wanted))]
                passed = pool.map(passes, names, [together[name] for name in names])
                failed += [name for name, good in zip(names, passed, strict=True) if not good]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                with suppress(ProcessLookupError):  # It ended meanwhile.
                    os.killpg(process.pid, signal.SIGTERM)
            raise
    print(
        f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'} ({time.monotonic() - started:.0f} s)"
    )
    return 1 if failed else 0


def stages() -> list[dict[str, str]]:
    """Return the stages as shell commands. Those of one group run two at a time, the longest first."""
    quickstart, tests = readme_commands()
    uv_run = f"{UV} run --no-sync"
    alone = f"{sys.executable} {ROOT}/.ci/alone.py"
    return [
        {"tests (README)": tests},
        {
            "quickstart (README)": quickstart,
            "types": f"{uv_run} mypy packages dev",
            "format": f"{uv_run} ruff format --check .",
            "lint": f"{uv_run} ruff check .",
            "imports": f"{uv_run} lint-imports",
            "hygiene": f"{uv_run} python .ci/hygiene.py",
            "build": f"{UV} build --all-packages --wheel --out-dir dist -q",
        },
        {
            **{
                f"python {version}": f"{alone} --python {version} {UV}" for version in OTHER_PYTHONS
            },
            **{f"alone {name}": f"{alone} {name} {UV}" for name in PACKAGES},
        },
    ]


def readme_commands() -> list[str]:
    """Return the two commands with which the README begins: they are what a stranger types."""
    block = re.search(
        r"```(?:sh|bash|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block, "README.md has no code block"
    commands = [line for line in block.group(1).splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2, f"README.md begins with {len(commands)} commands instead of two"
    return commands


def passes(name: str, command: str) -> bool:
    """Run one stage; print its line, and what it said if it failed."""
    log = LOG / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower())}.log"
    started = time.monotonic()
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            command,
            shell=True,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**PATIENCE, **os.environ},
            start_new_session=True,  # To be ended with all that it started.
        ) as process,
    ):
        running.add(process)
        code = process.wait()
        running.remove(process)
    text = log.read_text(errors="replace").strip()
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    told = f"{'FAILED' if code else 'ok    '} {time.monotonic() - started:6.1f} s  {name:24s} {last[-90:]}"
    print(f"{told}\n{text[-20000:]}" if code else told, flush=True)
    return code == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
