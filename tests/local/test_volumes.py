"""Volumes of local jobs: at their paths for the function, nowhere for the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_runner.data.mounts import why_not_private


@pytest.fixture
def covered() -> Iterator[Path]:
    """A folder of this machine with a file, at whose path a volume is asked for."""
    there = Path(f"/var/kinetic-test-{os.getpid()}")
    try:
        there.mkdir()
    except OSError:
        pytest.skip("not allowed to make a folder outside of /tmp")
    (there / "mine").write_text("mine")
    yield there
    for path in there.iterdir():
        path.unlink()
    there.rmdir()


@pytest.mark.skipif(why_not_private() is not None, reason="no private mounts here")
def test_volumes_appear_for_the_function_and_its_children_and_not_on_the_machine(
    project, covered: Path
) -> None:
    project.write("set/a/b.txt", "b")
    project.write("set/c.txt", "c")
    project.write("other/d.txt", "d")
    project.write("config.json", "{}")
    project.copy("volumes.py")
    name = f"kinetic-test-{os.getpid()}"

    done = project.run("volumes.py", name, str(covered))

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "set": ["a", "c.txt", "new"],
        "other": ["d.txt"],
        "covered": ["d.txt", "mine"],
        "file": "{}",
        "argument": ["a", "c.txt"],
        "apart": True,
        "children": ["a", "c.txt", "new"],
        "environment": True,
    }
    assert not [path for path in Path("/").iterdir() if path.name.startswith(name)]
    assert sorted(path.name for path in (project.root / "set").iterdir()) == ["a", "c.txt"]
    assert {path.name: path.read_text() for path in covered.iterdir()} == {"mine": "mine"}
    # The same data is uploaded once, for the argument and for the volumes.
    assert len(list((project.home / "store" / "data-markers").iterdir())) == 3
