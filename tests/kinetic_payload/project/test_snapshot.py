from __future__ import annotations

import io
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.errors import DataError, PackagingError
from kinetic_payload.project.hashing import content_hash, hash_file
from kinetic_payload.project.roots import composed_path
from kinetic_payload.project.snapshot import (
    Membership,
    Snapshot,
    file_that_imports,
    take_snapshot,
    tree_of,
)
from kinetic_payload.project.stat_cache import Hashed, StatCache


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def plant(root: Path, *paths: str) -> None:
    for name in paths:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(name)


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


def links(snapshot: Snapshot) -> dict[str, str]:
    return {entry.path: entry.target for entry in snapshot.entries if entry.kind == "link"}


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {item.path: item.rule for item in snapshot.left_out}


def extracted(snapshot: Snapshot, dest: Path) -> Path:
    stream = io.BytesIO()
    snapshot.write(stream)
    extract_archive(stream, dest, expected_digest=snapshot.digest)
    return dest


def test_paths_that_are_left_out_are_listed_with_the_line(root: Path) -> None:
    plant(root, "train.py", ".env", ".git/config", "big/x", "sub/a.log", "sub/b.py", "out.bin")
    plant(root, "envs/mine/pyvenv.cfg", "envs/mine/bin/python")
    (root / ".gitignore").write_text("# results\n*.log\n")
    (root / ".kineticignore").write_text("/out.bin\n")
    kept = [".gitignore", ".kineticignore", "envs", "sub", "sub/b.py", "train.py"]

    snapshot = take_snapshot(root, exclude=[root, root.parent, root / "big"])

    assert paths(snapshot) == kept
    assert reasons(snapshot) == {
        ".env": "default: .env*",
        ".git": "default: .git",
        "big": "data",
        "envs/mine": "default: a virtual environment",
        "out.bin": ".kineticignore:1: /out.bin",
        "sub/a.log": ".gitignore:2: *.log",
    }
    everything = paths(take_snapshot(root, no_defaults=True))
    assert everything == sorted([*kept, ".env", ".git", ".git/config", "big", "big/x"])


def test_data_is_left_out_under_any_of_its_names(root: Path, tmp_path: Path) -> None:
    plant(tmp_path, "disk/set/x")
    (root / "linked").symlink_to(tmp_path / "disk")
    (root / "data").symlink_to(tmp_path / "disk" / "set")

    snapshot = take_snapshot(root, exclude=[root / "data"])

    assert paths(snapshot) == ["linked"]
    assert reasons(snapshot) == {"data": "data", "linked/set": "data"}


def test_links_inside_stay_links(root: Path, tmp_path: Path) -> None:
    plant(root, "v1/w", "v2/w", "e/deep/", "cafe\u0301/w")
    (root / "latest").symlink_to("v2")
    (root / "again").symlink_to("v2")
    (root / "chain").symlink_to("latest/w")
    (root / "absolute").symlink_to(root / "v1" / "w")
    (root / "e" / "around").symlink_to("../../project/v1")
    (root / "dangling").symlink_to("nowhere")
    (root / "e" / "up").symlink_to("..")
    (root / "cafe\u0301" / "here").symlink_to("w")

    snapshot = take_snapshot(root)

    found = links(snapshot)
    assert found.pop(next(path for path in found if path.startswith("caf"))) == "w"
    assert found == {
        "absolute": "v1/w",
        "again": "v2",
        "chain": "latest/w",
        "dangling": "nowhere",
        "e/around": "../v1",
        "e/up": "..",
        "latest": "v2",
    }
    assert (extracted(snapshot, tmp_path / "out") / "e" / "around" / "w").read_text() == "v1/w"


def test_a_link_that_spells_its_target_in_another_case_leads_to_the_same_file(root: Path) -> None:
    # As on a file system that ignores case, where only one of the two would be listed.
    plant(root, "Model.bin", "other.bin", "Other.bin")
    with suppress(FileExistsError):
        os.link(root / "Model.bin", root / "model.bin")
    (root / ".gitignore").write_text("model.bin\nother.bin\n")
    (root / "best").symlink_to("model.bin")
    (root / "ignored").symlink_to("other.bin")

    assert links(take_snapshot(root)) == {"best": "Model.bin", "ignored": "other.bin"}


def test_targets_of_links_outside_are_shipped(root: Path, tmp_path: Path) -> None:
    plant(tmp_path, "shared/lib/m.py", "shared/conf", "shared/notes.log")
    (tmp_path / "shared" / "m.py").symlink_to("lib/m.py")
    (tmp_path / "shared" / "back").symlink_to(tmp_path / "shared")
    (root / "shared").symlink_to("../shared")
    (root / "twice").symlink_to("../shared")
    (root / "conf").symlink_to(tmp_path / "shared" / "conf")
    (root / ".gitignore").write_text("*.log\ntwice/m.py\n")

    snapshot = take_snapshot(root)

    assert links(snapshot) == {"shared/m.py": "lib/m.py", "shared/back": ".", "twice/back": "."}
    out = extracted(snapshot, tmp_path / "out")
    assert (out / "conf").read_text() == "shared/conf"
    assert (out / "shared" / "m.py").read_text() == "shared/lib/m.py"
    assert (out / "twice" / "lib" / "m.py").read_text() == "shared/lib/m.py"
    assert not (out / "shared").is_symlink()
    assert "shared/notes.log" in reasons(snapshot)


def test_links_in_circles_end(root: Path, tmp_path: Path) -> None:
    plant(tmp_path, "x/f", "y/f")
    (tmp_path / "x" / "y").symlink_to(tmp_path / "y")
    (tmp_path / "y" / "x").symlink_to(tmp_path / "x")
    (root / "x").symlink_to(tmp_path / "x")
    (root / "all").symlink_to("..")
    (root / "system").symlink_to("/")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")

    snapshot = take_snapshot(root)

    assert {"x/f", "x/y/f"} <= set(paths(snapshot))
    assert links(snapshot)["x/y/x"] == ".."
    assert "contains" in reasons(snapshot)["all"]
    assert "contains" in reasons(snapshot)["system"]
    extracted(snapshot, tmp_path / "out")


def test_paths_that_cannot_be_archived_are_left_out_with_the_reason(root: Path) -> None:
    plant(root, "a")
    os.mkfifo(root / "pipe")
    (root / "lost").symlink_to("/nowhere/at/all")
    (root / "..\\evil").touch()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(root)  # The path of a socket must be short.
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        snapshot = take_snapshot(root)

    assert paths(snapshot) == ["a"]
    assert reasons(snapshot) == {
        "..\\evil": "its name is not safe in an archive: it contains '..'",
        "lost": "a link that leads nowhere",
        "pipe": "neither a file nor a folder",
        "socket": "neither a file nor a folder",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_everything_unreadable_is_named_at_once(root: Path) -> None:
    plant(root, "a", "b", "c", "locked/x")
    for name in ("a", "b", "locked"):
        (root / name).chmod(0)

    with pytest.raises(PackagingError, match=r"(?s)3 of.*'a'.*'b'.*'locked'"):
        take_snapshot(root)
    (root / "locked").chmod(0o755)


@pytest.mark.parametrize(
    ("look", "kind"),
    [(take_snapshot, PackagingError), (tree_of, DataError), (content_hash, DataError)],
)
def test_a_missing_folder_is_named(root: Path, look, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="missing"):
        look(root / "missing")


def test_an_unchanged_tree_costs_no_reads(root: Path, tmp_path: Path) -> None:
    plant(root, "a", "b/c")
    first = StatCache(tmp_path / "cache")
    for path in (root / "a", root / "b" / "c"):
        hashed = hash_file(path, str(path.relative_to(root)))
        first.put(Hashed(hashed.relpath, "ab" * 32, 1, hashed.status, True))
    first.get("a", (root / "a").stat())
    first.save()

    snapshot = take_snapshot(root, cache=StatCache(tmp_path / "cache"))

    # Reading the files would have given other digests.
    assert {entry.digest for entry in snapshot.entries if entry.kind == "file"} == {"ab" * 32}


def test_the_largest_paths_are_disjoint_and_have_lines_that_leave_them_out(root: Path) -> None:
    plant(root, "train.py", "data/raw/one.bin", "models/big[1].pt", "models/small.pt")
    for number in range(30):
        plant(root, f"images/{number}.png")
        (root / f"images/{number}.png").write_bytes(b"x" * 1000)
    (root / "data/raw/one.bin").write_bytes(b"x" * 5_000_000)
    (root / "models/big[1].pt").write_bytes(b"x" * 9_000)
    snapshot = take_snapshot(root)

    largest = snapshot.largest(3)

    assert largest == [
        ("/data/raw/one.bin", 5_000_000),
        ("/images/", 30_000),
        ("/models/big\\[1].pt", 9_000),
    ]
    assert snapshot.oversize_warning(6) is None
    warning = snapshot.oversize_warning(5) or ""
    assert "5.0 MB" in warning
    assert all(line in warning for line, _ in largest)
    (root / ".kineticignore").write_text("\n".join(line for line, _ in largest))
    left = [path for path in paths(take_snapshot(root)) if "." in path]
    assert left == [".kineticignore", "models/small.pt", "train.py"]


def test_data_is_not_subject_to_ignore_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    plant(data, "a.log", ".env", "sub/x", "empty/")
    (data / ".gitignore").write_text("*")
    plant(tmp_path, "outside/f")
    (data / "linked").symlink_to(tmp_path / "outside" / "f")
    (data / "near").symlink_to("sub/x")
    (data / "folder").symlink_to(tmp_path / "outside")
    (data / "inside").symlink_to("sub")
    (data / "later").symlink_to("not/yet")
    (data / "gone").symlink_to("/nowhere/at/all")

    tree = tree_of(data)

    assert links(tree) == {"inside": "sub", "later": "not/yet"}
    assert reasons(tree) == {"gone": "a link that leads nowhere"}
    out = extracted(tree, tmp_path / "out")
    assert (out / "linked").read_text() == "outside/f"
    assert (out / "near").read_text() == "sub/x"
    assert (out / "folder" / "f").read_text() == "outside/f"
    assert (out / "empty").is_dir()
    assert (out / "a.log").is_file()


def test_a_single_file_is_a_tree_of_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "config.json").chmod(0o640)

    tree = tree_of(tmp_path / "config.json")

    assert [(e.path, e.kind, e.mode, e.size) for e in tree.entries] == [
        ("config.json", "file", 0o640, 2)
    ]
    out = extracted(tree, tmp_path / "out")
    assert stat.S_IMODE((out / "config.json").stat().st_mode) == 0o640


def test_dots_after_a_link_have_the_systems_meaning(tmp_path: Path) -> None:
    plant(tmp_path, "far/deep/", "far/x.csv", "near/x.csv")
    (tmp_path / "near" / "link").symlink_to("../far/deep")
    above = tmp_path / "near" / "link" / ".."

    assert paths(tree_of(above)) == ["deep", "x.csv"]
    assert tree_of(above / "x.csv").digest == tree_of(tmp_path / "far" / "x.csv").digest


def test_very_deep_folders_are_no_problem(root: Path, tmp_path: Path) -> None:
    deep = root.joinpath(*["d"] * 700)
    deep.mkdir(parents=True)
    (deep / "f").touch()

    assert len(take_snapshot(root).entries) == 701


def test_data_leaves_out_system_files_of_macos(root: Path) -> None:
    plant(root, ".DS_Store", "a/.DS_Store", "a/x.csv", "a/._x.csv", "a/._alone")

    data = tree_of(root)

    assert paths(data) == ["a", "a/._alone", "a/x.csv"]
    assert [item.path for item in data.left_out] == [".DS_Store", "a/.DS_Store", "a/._x.csv"]


def test_a_name_is_composed_where_the_file_system_ignores_the_form(root: Path) -> None:
    listed, composed = "cafe\u0301.py", "caf\u00e9.py"
    plant(root, listed, "cafe.py")
    assert paths(take_snapshot(root)) == ["cafe.py", listed]

    os.link(root / listed, root / composed)  # As macOS finds it, but here the folder lists it, too.

    assert [composed_path(str(root), name) for name in (listed, "cafe.py")] == [composed, "cafe.py"]
    assert paths(take_snapshot(root)) == ["cafe.py", listed, composed]


def test_membership_agrees_with_the_snapshot(root: Path, tmp_path: Path) -> None:
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


def test_links_that_are_kept_or_left_out_do_not_ship_their_targets(
    root: Path, tmp_path: Path
) -> None:
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


def test_excluded_paths_are_left_out_under_any_name(
    root: Path, with_another_path: Callable[[Path, str], str]
) -> None:
    plant(root, "home/keys/key", "code/a.py", "one.bin")
    (root / "to_home").symlink_to("home")

    printed = with_another_path(
        root,
        """
        from kinetic_payload.project.snapshot import Membership, take_snapshot, tree_of
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


def test_a_hard_link_of_an_excluded_file_is_not_excluded(root: Path) -> None:
    plant(root, "data.bin")
    os.link(root / "data.bin", root / "model.bin")

    assert paths(take_snapshot(root, exclude=[root / "data.bin"])) == ["model.bin"]
    assert Membership(root, exclude=[root / "data.bin"])(root / "model.bin")


@pytest.mark.parametrize(
    ("text", "is_import"),
    [
        ("import keras", True),
        ("import os, keras.layers as layers", True),
        ("from keras import ops", True),
        ("from keras.layers import Dense", True),
        ("def train():\n    import keras\n", True),
        ("try:\n    from keras import (\n        ops,\n    )\nexcept ImportError: pass\n", True),
        ("if True: import keras", True),
        ("# import keras", False),
        ("'''\nimport keras\n'''", False),
        ("import keras_tuner", False),
        ("from mine import keras", False),
        ("from .keras import ops", False),
        ("import keras(", False),
        ("keras = 1", False),
    ],
)
def test_the_file_that_imports_a_package_is_found(root: Path, text: str, is_import: bool) -> None:
    plant(root, "a.py", "b/model.py")
    (root / "b" / "model.py").write_text(text)

    found = file_that_imports(take_snapshot(root), "keras")

    assert found == ("b/model.py" if is_import else None)
