"""Requests that the local backend refuses, and when."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import kinetic
from kinetic.errors import InvalidRequestError


def work() -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"container_image": "prebuilt"}, "'bundled'"),
        ({"container_image": "me/image:1"}, "me/image:1"),
        ({"pod_overrides": {"spec": {}}}, "runs no pods"),
        ({"accelerator": "tpu-v5p-4096"}, "Try the same code on a smaller slice"),
    ],
)
def test_a_request_that_this_machine_cannot_run_is_refused_before_anything_is_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], message: str
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KINETIC_HOME", str(home))
    given: dict[str, Any] = {"accelerator": "cpu", "backend": "local", **options}
    function = kinetic.run(**given)(work)

    with pytest.raises(InvalidRequestError) as caught:
        function.run_async()

    assert message in str(caught.value)
    assert caught.value.hint
    assert not list(home.glob("store/*/*"))


CALL = """
import resource, sys
import kinetic

@kinetic.run(accelerator="cpu")
def work(): pass

if __name__ == "__main__":
    try:
        work()
        for most in map(int, sys.argv[1:]):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, 1024))
            try:
                work()
            except kinetic.KineticError as error:
                print(most, error.message)
    except kinetic.KineticError as error:
        print(error.message)
"""


def test_a_limit_of_open_files_that_is_too_low_is_named(project: Any) -> None:
    printed = project.script(CALL, "6", "8", "10", "12", "14").splitlines()
    failures = [line for line in printed if line[0].isdigit()]

    assert len(failures) >= 4
    assert [line for line in failures if "Too many open files" not in line] == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_without_the_list_of_processes_nothing_is_started(project: Any) -> None:
    enter = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /proc && "$@"',
        "",
    ]
    if project.execute(*enter, "true").returncode:
        pytest.skip("no mounts for users here")
    command = [*enter, sys.executable, str(project.write("main.py", CALL))]

    assert "needs /proc" in project.execute(*command).stdout
