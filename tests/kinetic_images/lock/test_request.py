"""The digest of a request: another one after each change of an ingredient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.project_locks import ProjectLock
from kinetic_images.lock.request import LockRequest
from kinetic_images.targets import Target

TARGET = Target(python="3.11")


def request_of(folder: Path, data: bytes) -> LockRequest:
    path = folder / "requirements.txt"
    path.write_bytes(data)
    dependencies = read_dependencies(path, environ={}).for_target(TARGET.platform, TARGET.python)
    return LockRequest(
        dependencies=dependencies, target=TARGET, python=TARGET.python, platform=TARGET.platform
    )


CHANGES: dict[str, Callable[[LockRequest], LockRequest]] = {
    "Python": lambda r: replace(r, target=replace(TARGET, python="3.12"), python="3.12"),
    "processor": lambda r: replace(r, target=replace(TARGET, machine="aarch64")),
    "glibc": lambda r: replace(r, target=replace(TARGET, glibc=(2, 31))),
    "an addition": lambda r: replace(r, additions=("jax==1",)),
    "a preference": lambda r: replace(r, preferences=("cloudpickle==3",)),
    "a wheel of ours": lambda r: replace(r, own={"kinetic": Path("/c/0a1b/kinetic-1.whl")}),
    "the project's lock": lambda r: replace(r, locked=ProjectLock(Path("/p/uv.lock"), b"1")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_ingredient_changes_the_digest(tmp_path: Path, change: str) -> None:
    request = request_of(tmp_path, b"numpy\n")
    assert CHANGES[change](request).digest != request.digest


def test_the_folder_of_an_own_wheel_does_not_change_the_digest(tmp_path: Path) -> None:
    request = request_of(tmp_path, b"numpy\n")
    digests = {
        replace(request, own={"kinetic": Path(home, "0a1b", "kinetic-1.whl")}).digest
        for home in ("/root", "/home/me")
    }
    assert len(digests) == 1
