from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kinetic_payload.project.snapshot import Membership, take_snapshot


def test_excluded_paths_are_left_out_under_any_name(
    tmp_path: Path, with_another_path: Callable[[Path, str], str]
) -> None:
    project = tmp_path / "project"
    for name in ("home/keys", "code"):
        (project / name).mkdir(parents=True)
    for name in ("home/keys/key", "code/a.py", "one.bin"):
        (project / name).write_text(name)
    (project / "to_home").symlink_to("home")

    printed = with_another_path(
        project,
        """
        from kinetic_payload.project.snapshot import Membership
        from kinetic_payload.project.snapshot import take_snapshot, tree_of
        out = [folder / "home", folder / "one.bin"]
        for tree in (take_snapshot(other, exclude=out), tree_of(other, exclude=out)):
            print(*(entry.path for entry in tree.entries), *(one.path for one in tree.left_out), sep="|")
        ships = Membership(other, exclude=out)
        print(ships(other / "home/keys/key"), ships(other / "one.bin"), ships(other / "code/a.py"))
        subprocess.run(["mount", "--bind", other / "home", other / "code"])
        print(*(entry.path for entry in take_snapshot(other, exclude=out).entries))
        """,
    )

    expected = "code|code/a.py|home|one.bin|to_home"
    assert printed.splitlines() == [expected, expected, "False False True", ""]


def test_a_hard_link_of_an_excluded_file_is_not_excluded(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_text("data")
    os.link(tmp_path / "data.bin", tmp_path / "model.bin")

    snapshot = take_snapshot(tmp_path, exclude=[tmp_path / "data.bin"])

    assert [entry.path for entry in snapshot.entries] == ["model.bin"]
    assert Membership(tmp_path, exclude=[tmp_path / "data.bin"])(tmp_path / "model.bin")
