"""Volumes of local jobs: at their paths for the function, nowhere for the machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kinetic_runner.data.mounts import why_not_private


@pytest.mark.skipif(why_not_private() is not None, reason="no private mounts here")
def test_volumes_appear_for_the_function_and_its_children_and_not_on_the_machine(project) -> None:
    project.write("set/a/b.txt", "b")
    project.write("set/c.txt", "c")
    project.write("other/d.txt", "d")
    project.write("config.json", "{}")
    project.copy("volumes.py")
    name = f"kinetic-test-{os.getpid()}"

    done = project.run("volumes.py", name)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "set": ["a", "c.txt", "new"],
        "other": ["d.txt"],
        "file": "{}",
        "argument": ["a", "c.txt"],
        "apart": True,
        "children": ["a", "c.txt", "new"],
        "environment": True,
    }
    assert not [path for path in Path("/").iterdir() if path.name.startswith(name)]
    assert sorted(path.name for path in (project.root / "set").iterdir()) == ["a", "c.txt"]
    # The same data is uploaded once, for the argument and for the volume.
    assert len(list((project.home / "store" / "data-markers").iterdir())) == 3


@pytest.mark.skipif(why_not_private() is not None, reason="no private mounts here")
def test_what_is_at_the_path_on_the_machine_is_covered_and_left_as_it_was(
    project, tmp_path: Path
) -> None:
    there = Path(f"/var/kinetic-test-{os.getpid()}")
    try:
        there.mkdir()
    except OSError:
        pytest.skip("not allowed to make a folder outside of /tmp")
    try:
        (there / "mine").write_text("mine")
        project.write("set/theirs", "theirs")
        printed = project.script(f"""
            import os
            import kinetic

            @kinetic.run(accelerator="cpu", volumes={{{str(there)!r}: kinetic.Data("set")}})
            def work():
                open({str(there / "mine")!r}, "w").write("changed")
                return sorted(os.listdir({str(there)!r}))

            if __name__ == "__main__":
                print(work.run_async().result(timeout=60))
        """)
        assert printed == "['mine', 'theirs']\n"
        assert {path.name: path.read_text() for path in there.iterdir()} == {"mine": "mine"}
    finally:
        for path in there.iterdir():
            path.unlink()
        there.rmdir()
