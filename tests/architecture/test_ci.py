"""`.ci/run`: what it lets through, seen on a small project whose tests fail as often as they are told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci"
TESTS = """
from pathlib import Path

import pytest

FAILURES = {failures}


@pytest.mark.parametrize("name", FAILURES)
def test_it(name):
    mark = Path(__file__).parent / "runs" / name
    mark.parent.mkdir(exist_ok=True)
    runs = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (runs + 1))
    print(f"run {{runs + 1}} of {{name}}")
    assert runs >= FAILURES[name], f"{{name}} fails in run {{runs + 1}}"


def test_that_never_fails():
    (Path(__file__).parent / "whole").open("a").write("x")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with our `.ci`, whose README names pytest as its tests."""
    shutil.copytree(CI, tmp_path / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "README.md").write_text(
        f"```sh\ntrue\n{sys.executable} -m pytest -p xdist.plugin test_project.py\n```\n"
    )
    return tmp_path


def run_ci(project: Path, **failures: int) -> subprocess.CompletedProcess[str]:
    """Run the stage of the tests; each test fails as many times as its number says, then passes."""
    (project / "test_project.py").write_text(TESTS.format(failures=failures))
    return run_stage(project, "tests")


def run_stage(project: Path, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the stage *name*."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "KINETIC_"))}  # noqa: TID251
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"  # Where `python3` is this one.
    environment = {**kept, "PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    return subprocess.run(
        [str(project / ".ci" / "run"), name],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_two_tests_that_fail_once_are_shown_with_both_outputs_and_fail_nothing(
    project: Path,
) -> None:
    # Several processes, as our tests are run.
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["-n=2"]\n')

    ran = run_ci(project, unlucky=1, second=1, good=0)

    assert ran.returncode == 0, ran.stdout
    unsteady = ran.stdout.partition("UNSTEADY (2,")[2]
    assert "test_it[unlucky]" in unsteady
    assert "unlucky fails in run 1" in unsteady
    assert "run 1 of unlucky" in unsteady
    assert "run 2 of unlucky" in unsteady
    assert "good" not in unsteady
    assert (project / "runs" / "good").read_text() == "x", "only what failed runs again"
    assert (project / "whole").read_text() == "x", "only what failed runs again"


def test_a_third_unsteady_test_fails_the_run_as_does_one_that_fails_twice(project: Path) -> None:
    ran = run_ci(project, one=1, two=1, three=1, broken=9)

    assert ran.returncode == 1
    assert "FAILED: tests (README), 3 unsteady tests" in ran.stdout
    assert (project / "runs" / "broken").read_text() == "xx", "it had its second chance"


def test_a_stage_that_fails_although_no_test_does_is_not_run_again(project: Path) -> None:
    (project / "conftest.py").write_text(
        "def pytest_sessionfinish(session): session.exitstatus = 3\n"
    )

    assert run_ci(project, unlucky=1).returncode == 1
    assert (project / "runs" / "unlucky").read_text() == "x"


def test_python_3_14_is_left_out_with_a_reason_where_there_is_no_test_cloud(project: Path) -> None:
    ran = run_stage(project, "python 3.14")

    assert ran.returncode == 0, ran.stdout
    assert "skipped         python 3.14" in ran.stdout
    assert "KINETIC_TESTCLOUD names its folder" in ran.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="the stage needs root")
@pytest.mark.parametrize("beside", [True, False], ids=["beside", "named"])
def test_where_there_is_a_test_cloud_python_3_14_must_pass(tmp_path: Path, beside: bool) -> None:
    project = tmp_path / "checkout"
    project.mkdir()
    shutil.copytree(CI, project / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "README.md").write_text("```sh\ntrue\ntrue\n```\n")
    cloud = tmp_path / ("shared/testcloud" if beside else "cloud")
    (cloud / "python").mkdir(parents=True)
    script = cloud / "python" / "with-3.14"
    script.write_text('#!/bin/sh\necho "It had: $*"; exit 3\n')
    script.chmod(0o755)
    named = {} if beside else {"KINETIC_TESTCLOUD": str(cloud)}

    ran = run_stage(project, "python 3.14", **named)

    assert ran.returncode == 1
    assert f"It had: --repo {project} python3.14 {project}/.ci/alone.py 3.14" in ran.stdout
    assert "FAILED: python 3.14" in ran.stdout


def test_a_test_cloud_that_is_named_but_not_there_fails_the_run(project: Path) -> None:
    ran = run_stage(project, "python 3.14", KINETIC_TESTCLOUD=str(project / "nowhere"))

    assert ran.returncode != 0
    assert "nowhere" in ran.stderr
