"""A lock is found again whatever the spelling, and is another one after each change of an ingredient."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.project_locks import ProjectLock
from kinetic_images.lock.request import LockRequest
from kinetic_images.targets import Target

LINES = (
    "numpy >=1.26, <3",
    "Scikit_Learn[tests]==1.5",
    "typing-extensions ; python_version < '3.13'",
    "mine @ https://example.org/mine-1.0-py3-none-any.whl",
)
TARGET = Target(python="3.11")


def request_of(folder: Path, data: bytes) -> LockRequest:
    path = folder / "requirements.txt"
    path.write_bytes(data)
    dependencies = read_dependencies(path, environ={}).for_target(TARGET.platform, TARGET.python)
    return LockRequest(
        dependencies=dependencies, target=TARGET, python=TARGET.python, platform=TARGET.platform
    )


def respelled(line: str, draw: random.Random) -> str:
    name, rest = line[:5], line[5:]
    name = draw.choice([name, name.upper(), name.replace("_", "-"), name.replace("-", "_")])
    if "@" not in rest and ";" not in rest:
        rest = draw.choice([rest, rest.replace(" ", ""), rest.replace(",", " ,  ")])
    return draw.choice(["", "  "]) + name + rest + draw.choice(["", "  ", "  # why", " \\\n  "])


@given(st.integers())
def test_order_comments_line_ends_and_spelling_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw = random.Random(seed)
    lines = [respelled(line, draw) for line in LINES]
    lines += draw.sample(["", "# only a comment", "   "], 2)
    draw.shuffle(lines)
    text = draw.choice(["\n", "\r\n"]).join([*lines, ""])
    data = text.encode(draw.choice(["utf-8", "utf-8-sig"]))
    folder = tmp_path_factory.mktemp("project")
    assert request_of(folder, data).digest == request_of(folder, "\n".join(LINES).encode()).digest


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
def test_each_ingredient_changes_it(tmp_path: Path, change: str) -> None:
    request = request_of(tmp_path, b"numpy\n")
    assert CHANGES[change](request).digest != request.digest


@pytest.mark.parametrize(
    "text",
    ["numpy==1", "numpy[x]", "numpy\nscipy", "numpy # kn:keep", "--pre\nnumpy", "numpy ; os_name"],
)
def test_each_requirement_and_option_changes_it(tmp_path: Path, text: str) -> None:
    text = text.replace("os_name", "python_full_version != '3.11.4'")
    before = request_of(tmp_path, b"numpy\n")
    assert request_of(tmp_path, text.encode()).digest != before.digest


def test_where_a_wheel_of_ours_lies_does_not_matter(tmp_path: Path) -> None:
    request = request_of(tmp_path, b"numpy\n")
    digests = {
        replace(request, own={"kinetic": Path(home, "0a1b", "kinetic-1.whl")}).digest
        for home in ("/root", "/home/me")
    }
    assert len(digests) == 1
