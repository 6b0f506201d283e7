"""Requests that the local backend refuses, and when."""

from __future__ import annotations

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
