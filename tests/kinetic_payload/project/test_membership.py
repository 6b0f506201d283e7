from __future__ import annotations

import os
from pathlib import Path

from kinetic_payload.project.snapshot import Membership, take_snapshot


def plant(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_membership_agrees_with_the_snapshot(tmp_path: Path) -> None:
    root = tmp_path / "project"
    plant(root, "a.py", "a.log", ".env", "pkg/b.py", "pkg/gen/c.py", "pkg/gen/keep.py", "data/d.py")
    plant(root, "env/pyvenv.cfg", "env/lib/e.py", "../shared/s.py", "../shared/s.log")
    (root / ".gitignore").write_text("*.log\n")
    (root / "pkg" / ".kineticignore").write_text("gen/*\n!gen/keep.py\n")
    (root / "shared").symlink_to("../shared")
    (root / "alias").symlink_to("pkg")
    (root / "link.py").symlink_to("a.py")
    (root / "out.py").symlink_to("../shared/s.py")
    (tmp_path / "elsewhere").symlink_to(root)
    exclude = [root / "data"]

    snapshot = take_snapshot(root, exclude=exclude)
    ships = Membership(root, exclude=exclude)

    asked = [tmp_path / "elsewhere" / "a.py", tmp_path / "shared" / "s.py", root / "gone.py"]
    asked += [root / "pkg/../a.py", root / "pkg", root]
    for where, _, files in os.walk(root, followlinks=True):
        asked += [Path(where, file) for file in files]
    contained = {os.path.relpath(path, tmp_path) for path in asked if snapshot.contains(path)}
    assert {os.path.relpath(path, tmp_path) for path in asked if ships(path)} == contained
    assert contained == {
        *(f"project/{name}" for name in (".gitignore", "a.py", "link.py", "out.py", "shared/s.py")),
        *(f"project/{name}" for name in ("pkg/.kineticignore", "pkg/b.py", "pkg/gen/keep.py")),
        *(f"project/alias/{name}" for name in (".kineticignore", "b.py", "gen/keep.py")),
        "elsewhere/a.py",
    }


def test_links_that_are_kept_or_left_out_do_not_ship_their_targets(tmp_path: Path) -> None:
    root = tmp_path / "project"
    plant(tmp_path, "project/a.py", "beside/b.py", "shared/lib/c.py")
    (root / "all").symlink_to("..")
    (root / "shared").symlink_to("../shared")
    (tmp_path / "shared" / "back").symlink_to("lib")
    (tmp_path / "shared" / "c.py").symlink_to("lib/c.py")

    snapshot = take_snapshot(root)
    ships = Membership(root)

    for name in ("all/beside/b.py", "shared/back/c.py", "shared/c.py"):
        assert not snapshot.contains(root / name)
        assert not ships(root / name)
    assert ships(root / "shared" / "lib" / "c.py")
