from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetic_payload.ignore import RuleSet, Scope, ignore_line
from kinetic_payload.snapshot import take_snapshot

GIT = shutil.which("git")


def scope(git: str = "", own: str = "", *, no_defaults: bool = False) -> Scope:
    return Scope.top(no_defaults=no_defaults).reading(
        git=RuleSet.parse(git, ".gitignore"), own=RuleSet.parse(own, ".kineticignore")
    )


def leaves_out(scope: Scope, path: str) -> bool:
    """Judge a path, a folder if it ends in `/`, as a walk would: every folder on the way first."""
    *folders, name = path.rstrip("/").split("/")
    for folder in folders:
        if scope.leaves_out(folder, is_folder=True):
            return True
        scope = scope.inner(folder)
    return scope.leaves_out(name, is_folder=path.endswith("/")) is not None


@pytest.mark.parametrize(
    "path",
    [
        ".git/",
        ".git",
        "pkg/__pycache__/",
        "a.pyc",
        ".env",
        ".env.local",
        "deep/er/.envrc",
        "server.key",
        "ca.crt",
        "x/cert.pem",
        "id_rsa",
        "web/node_modules/",
        ".venv/",
        ".ssh/",
        ".mypy_cache/",
        ".DS_Store",
    ],
)
def test_what_never_should_travel_is_left_out_by_default(path: str) -> None:
    assert leaves_out(scope(), path)
    assert not leaves_out(scope(no_defaults=True), path)


@pytest.mark.parametrize("path", ["train.py", ".gitignore", "env/", "keys.py", "data/x", "build/"])
def test_what_belongs_to_a_project_is_not(path: str) -> None:
    assert not leaves_out(scope(), path)


@pytest.mark.parametrize(
    ("lines", "path", "out"),
    [
        ("*.log", "a/b.log", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("!keep.log\n*.log", "keep.log", True),
        ("/top", "top", True),
        ("/top", "a/top", False),
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", False),
        ("build/", "build", False),
        ("build/", "x/build/", True),
        ("build/\n!build/keep", "build/keep", True),
        ("build/*\n!build/keep", "build/keep", False),
        ("*\n!*/\n!*.py", "a/b.py", False),
        ("*\n!*/\n!*.py", "a/b.txt", True),
        ("*.txt\n!docs", "docs/a.txt", True),
        ("a/**/z", "a/b/c/z", True),
        ("**/z/y", "q/z/y", True),
        ("foo/**", "foo/", False),
        ("foo/**\n!foo/.gitkeep", "foo/.gitkeep", False),
        ("foo/**", "foo/a/b", True),
        ("**/", "a", False),
        ("**/", "a/", True),
        ("a/**/b/*.c", "a/b/x.c", True),
        ("a/**/b/*.c", "a/x/y/b/x.c", True),
        ("a/*", "a/b/", True),
        ("[z-a]", "z", False),
        ("foo/**", "foo/x", True),
        ("x[0-9]", "x7", True),
        ("x[!0-9]", "x7", False),
        ("\\#a", "#a", True),
        ("#a", "#a", False),
        ("\\!a", "!a", True),
        ("a\\ ", "a ", True),
        ("a   ", "a", True),
        ("a\r\nb\r\n", "b", True),
        ("\ufeffa", "a", True),
        ("tmp*", "tmpfile", True),
        ("*", "x", True),
        ("!", "x", False),
        ("[", "x", False),
        ("foo", "foo\n", False),
    ],
)
def test_lines_mean_what_they_mean_to_git(lines: str, path: str, out: bool) -> None:
    assert leaves_out(scope(lines), path) is out
    assert leaves_out(scope(own=lines), path) is out


def test_own_lines_win_over_gits_and_over_the_defaults() -> None:
    both = scope(git="*.csv\n!b.bin", own="!a.csv\n!.env.example\n*.bin")

    assert not leaves_out(both, "a.csv")
    assert leaves_out(both, "c.csv")
    assert leaves_out(both, "b.bin")
    assert not leaves_out(both, ".env.example")
    assert leaves_out(both, ".env")


def test_a_list_of_exceptions_in_gitignore_does_not_bring_back_secrets() -> None:
    assert leaves_out(scope(git="*\n!*/\n!.*"), ".env")
    assert leaves_out(scope(git="*\n!*/"), ".git/")


def test_the_deepest_file_and_its_last_line_decide() -> None:
    inner = scope(git="*.dat").inner("sub").reading(git=RuleSet.parse("!x.dat", "sub/.gitignore"))

    assert not leaves_out(inner, "x.dat")
    assert str(inner.leaves_out("y.dat", is_folder=False)) == ".gitignore:1: *.dat"


@pytest.mark.parametrize("name", ["a b", "st*r", "[x]", "q?", "back\\slash", "#x", "!x", "end "])
def test_the_line_for_a_path_leaves_out_that_path(name: str) -> None:
    line = ignore_line(f"dir/{name}", is_folder=False)

    assert leaves_out(scope(own=line), f"dir/{name}")
    assert not leaves_out(scope(own=line), "dir/other")
    assert not leaves_out(scope(own=line), name)


names = st.sampled_from(["a", "b", "ab", "a.c", "b.c", "a b"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
pieces = st.sampled_from(["a", "b", "*", "**", "?", "a*", "*.c", "[ab]", "a.c", "*b*", "\\a"])
lines = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(pieces, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "", "/"]),
)


@pytest.mark.skipif(GIT is None, reason="there is no git to compare with")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.sets(paths, min_size=1, max_size=12),
    st.lists(lines, max_size=6),
    st.lists(lines, max_size=4),
)
def test_a_snapshot_holds_what_git_would_add(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], top: list[str], inner: list[str]
) -> None:
    root = tmp_path_factory.mktemp("repo")
    for file in files:
        path = root / file
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (root / ".gitignore").write_text("\n".join(top))
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text("\n".join(inner))
    env = {"PATH": os.defpath, "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run([str(GIT), "init", "-q", str(root)], check=True, env=env)
    listed = subprocess.run(
        [str(GIT), "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"],
        check=True,
        env=env,
        capture_output=True,
        text=True,
    ).stdout

    snapshot = take_snapshot(root)

    shipped = {entry.path for entry in snapshot.entries if entry.kind == "file"}
    assert shipped == set(listed.split("\0")) - {""}
    shutil.rmtree(root)


def test_the_repository_above_the_project_has_a_say(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.ckpt\n/services/ml/data/\n")
    root = tmp_path / "services" / "ml"
    (root / "data").mkdir(parents=True)
    (root / "data" / "x").touch()
    (root / "a.ckpt").touch()
    (root / "train.py").touch()

    snapshot = take_snapshot(root)

    assert [entry.path for entry in snapshot.entries] == ["train.py"]
    assert {str(item.rule) for item in snapshot.left_out} == {
        "../../.gitignore:1: *.ckpt",
        "../../.gitignore:2: /services/ml/data/",
    }


def test_a_repository_that_ignores_the_project_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*\n")
    root = tmp_path / "scratch"
    root.mkdir()
    (root / "train.py").touch()

    assert [entry.path for entry in take_snapshot(root).entries] == ["train.py"]
