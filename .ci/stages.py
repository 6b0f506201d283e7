"""The stages of `.ci/run`: all checks that a change must pass.

`.ci/run` prints one line for each stage, with its time. It needs Python >= 3.11 with pip, and a package
index. `.ci/run NAME ...` runs only the stages whose names begin with NAME. At the end, failed tests run
once more, one at a time; `failures.py` decides whether the run passes then.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from failures import MOST_REPEATED, MOST_UNSTEADY, Records, describe, steady_failures
from testcloud import VARIABLE, testcloud

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
ON_OTHER_PYTHONS = (
    "tests/kinetic_payload/calls tests/kinetic_runner/bundle tests/local/test_life.py"
)
"""Tests that run on other Pythons besides the one of the README's command, which runs all tests.

They cover what differs between versions: byte code, pickles, and the life of a job.
"""
NEWEST = "3.13"
"""The newest Python that a test machine has without the test cloud."""
NICE = "nice -n 15"
"""How stages run that only fill the time in which others wait."""
RETRIES = {
    "PIP_RETRIES": "10",
    "PIP_TIMEOUT": "60",
    "UV_HTTP_RETRIES": "10",
    "UV_HTTP_TIMEOUT": "120",
    "UV_LOCK_TIMEOUT": "1800",
    "UV_COMPILE_BYTECODE_TIMEOUT": "600",
}
"""Settings for an unreliable package index, a uv lock that another stage holds, and a slow machine."""


TESTS_FAILED = 1
"""pytest's exit code if tests failed, and in no other case."""

running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Stage:
    """One stage: a command that must succeed."""

    name: str
    command: str
    pytest: str | None = None
    """Options for the pytest that the command runs; None if it runs no pytest."""
    skipped: str | None = None
    """Why the stage cannot run on this machine, or None if it can."""

    @property
    def records(self) -> Records:
        """The files in which pytest records the results."""
        return Records(LOG, re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-"))


def main(wanted: list[str]) -> int:
    """Run the stages whose names begin with one of *wanted*, or all; return the exit code."""
    os.chdir(ROOT)
    # Thousands of processes would compile the libraries anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    LOG.mkdir(parents=True, exist_ok=True)  # A run that was killed may still write there.
    started = time.monotonic()
    failed: dict[Stage, int] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor(3) as pool:
        try:
            for together in stages():
                chosen = [s for s in together if not wanted or s.name.startswith(tuple(wanted))]
                codes = list(pool.map(run, chosen))
                failed |= {s: code for s, code in zip(chosen, codes, strict=True) if code}
            lasting, unsteady = run_again(failed)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                with suppress(ProcessLookupError):  # The process has ended meanwhile.
                    os.killpg(process.pid, signal.SIGTERM)
            raise
    if unsteady:
        print(f"UNSTEADY ({len(unsteady)}, at most {MOST_UNSTEADY} are accepted)")
        print("\n\n".join(unsteady))
    print(largest_modules())
    problems = [stage.name for stage in lasting]
    if len(unsteady) > MOST_UNSTEADY:
        problems.append(f"{len(unsteady)} unsteady tests")
    print(
        f"{'FAILED: ' + ', '.join(problems) if problems else 'all passed'} ({time.monotonic() - started:.0f} s)"
    )
    return 1 if problems else 0


def run_again(failed: Mapping[Stage, int]) -> tuple[list[Stage], list[str]]:
    """Run failed tests once more; return the stages that failed for good, and the unsteady tests."""
    first = {
        stage: stage.records.failed(1)
        for stage, code in failed.items()
        if stage.pytest is not None and code == TESTS_FAILED
    }
    if sum(map(len, first.values())) > MOST_REPEATED:
        return list(failed), []
    lasting, unsteady = [], []
    for stage in failed:
        # A stage without a failed test failed for another reason; running tests again cannot help.
        if not first.get(stage) or run(stage, again=True) not in (0, TESTS_FAILED):
            lasting.append(stage)
            continue
        second = stage.records.cases(2)
        still = steady_failures(first[stage], second)
        if still:
            lasting.append(stage)
        unsteady += [
            describe(stage.name, name, case, second[name])
            for name, case in first[stage].items()
            if name not in still
        ]
    return lasting, unsteady


def stages() -> list[list[Stage]]:
    """Return the stages in groups. Stages of one group run three at a time, the longest first.

    Tests of jobs wait more than they compute, so three such stages fit beside each other. Where a stage needs all
    processors, those beside it are `nice`: otherwise what its tests wait for comes too late.
    """
    quickstart, tests = readme_commands()
    uv_run = f"{UV} run --no-sync"
    alone = f"{NICE} {sys.executable} {ROOT}/.ci/alone.py"
    tier = f"{sys.executable} {ROOT}/.ci/tiers.py {UV}"
    return [
        [Stage("quickstart (README)", quickstart)],  # It creates the environment for the others.
        [
            Stage("types", f"{uv_run} mypy packages dev tests/servers/src"),
            # The servers for tests are no member of the workspace, so this does not build them.
            Stage("build", f"{UV} build --all-packages --wheel --out-dir dist -q"),
            Stage("imports", f"{uv_run} lint-imports"),
            Stage("lint", f"{uv_run} ruff check ."),
            Stage("format", f"{uv_run} ruff format --check ."),
            Stage("hygiene", f"{uv_run} python .ci/hygiene.py"),
            Stage("docs", f"{UV} run --isolated --only-group docs mkdocs build --strict -q"),
        ],
        [Stage("tests (README)", tests, pytest="")],
        [
            Stage(
                "cluster",
                f"{tier} cluster",
                # Their order matters: a worker that got tests in advance would keep the last ones waiting.
                pytest="-n 6 --dist=load --maxschedchunk=1",
            ),
            *(
                Stage(
                    f"python {version}", f"{alone} {version} {UV} {ON_OTHER_PYTHONS}", pytest="-n 2"
                )
                for version in ("3.12", "3.13")
            ),
            on_3_14(),
            *(
                Stage(f"alone {name}", f"{alone} {NEWEST} {UV} {name}", pytest="-n 0")
                for name in PACKAGES
            ),
        ],
        [
            # The README's command has run `test_life.py`.
            Stage(
                "local",
                f"{uv_run} pytest -q tests/local --ignore=tests/local/test_life.py",
                pytest="-n 3",
            ),
            Stage("wire, servers", f"{uv_run} pytest -q tests/wire tests/servers", pytest="-n 2"),
            # The engine and the registry are shared by all tests of a process.
            Stage("images", f"{tier} images", pytest="-n 0"),
            Stage("browser", f"{tier} browser", pytest="-n 0"),
        ],
    ]


def on_3_14() -> Stage:
    """Return the stage on Python 3.14, which a script of the test cloud provides. The script needs root."""
    name, folder = "python 3.14", testcloud()
    if folder is None:
        return Stage(name, "", skipped=f"there is no test cloud here; {VARIABLE} names its folder")
    if os.geteuid() != 0:
        return Stage(name, "", skipped="only root can run with-3.14 of the test cloud")
    command = [folder / "python" / "with-3.14", "--repo", ROOT, "python3.14", ROOT / ".ci/alone.py"]
    return Stage(
        name,
        f"{NICE} {shlex.join(map(str, [*command, '3.14', UV]))} {ON_OTHER_PYTHONS}",
        pytest="-n 2",
    )


def largest_modules(count: int = 10) -> str:
    """Return a list of the packages' largest modules. Their size has no limit; large ones may need a split."""
    sizes = {path: path.read_bytes().count(b"\n") for path in ROOT.glob("packages/*/src/**/*.py")}
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:count]
    rows = (f"{sizes[path]:5d}  {path.relative_to(ROOT / 'packages')}" for path in largest)
    return "\n".join(["largest modules, in lines:", *rows])


def readme_commands() -> list[str]:
    """Return the two commands at the start of the README, which a newcomer runs first."""
    block = re.search(
        r"```(?:sh|bash|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block, "README.md has no code block"
    commands = [line for line in block.group(1).splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2, f"README.md begins with {len(commands)} commands instead of two"
    return commands


def options(stage: Stage, number: int) -> str:
    """Return pytest's options for the first or second run of *stage*."""
    inherited = os.environ.get("PYTEST_ADDOPTS", "")
    return " ".join([inherited, stage.pytest or "", shlex.join(stage.records.options(number))])


def run(stage: Stage, *, again: bool = False) -> int:
    """Run one stage; print its line, and its output if it failed. Return its exit code."""
    if stage.skipped is not None:
        print(f"skipped         {stage.name:24s} {stage.skipped}", flush=True)
        return 0
    number = 2 if again else 1
    name = f"{stage.name} again" if again else stage.name
    log = LOG / f"{stage.records.name}-{number}.log"
    started = time.monotonic()
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            stage.command,
            shell=True,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={
                **RETRIES,
                **os.environ,
                **({} if stage.pytest is None else {"PYTEST_ADDOPTS": options(stage, number)}),
            },
            start_new_session=True,  # So that it can be ended with all processes that it started.
        ) as process,
    ):
        running.add(process)
        code = process.wait()
        running.remove(process)
    text = log.read_text(errors="replace").strip()
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    seconds = time.monotonic() - started
    summary = f"{'FAILED' if code else 'ok    '} {seconds:6.1f} s  {name:24s} {last[-90:]}"
    print(f"{summary}\n{text[-20000:]}" if code else summary, flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
