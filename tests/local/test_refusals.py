"""Requests that the local backend refuses, and when."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import kinetic
from kinetic.errors import InvalidRequestError
from kinetic_images.uv import find_uv


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


def test_a_python_that_uv_removes_is_refused(project: Any) -> None:
    decorated = "@kinetic.run(accelerator='cpu')\ndef work(): ..."
    project.write("main.py", f"import kinetic\n{decorated}\nwork.run_async()\n")
    command = ("run", "--isolated", "--no-project", "--offline", "--python", sys.executable)
    path = os.pathsep.join(sys.path)
    done = project.execute(find_uv().program, *command, "python", "main.py", PYTHONPATH=path)
    assert "uv removes this Python when the program ends" in done.stderr
