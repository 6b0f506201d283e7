from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_payload.errors import PackagingError
from kinetic_payload.project.ignore import RuleSet, Scope, ignore_line
from kinetic_payload.project.snapshot import Membership, take_snapshot

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(*arguments: object) -> None:
    subprocess.run(["git", *map(str, arguments)], check=True)


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).mkdir() if path.endswith("/") else (root / path).touch()


def files(root: Path) -> set[str]:
    return {entry.path for entry in take_snapshot(root).entries if entry.kind != "dir"}


def scope(git: str = "", own: str = "", *, no_defaults: bool = False) -> Scope:
    return Scope.top(no_defaults=no_defaults).reading(
        git=RuleSet.parse(git.encode(), ".gitignore"),
        own=RuleSet.parse(own.encode(), ".kineticignore"),
    )


def leaves_out(scope: Scope, path: str) -> bool:
    """Judge a path, a folder if it ends in `/`, as a walk would: every folder on the way first."""
    *folders, name = path.rstrip("/").split("/")
    for folder in folders:
        if scope.leaves_out(folder, is_folder=True):
            return True
        scope = scope.inner(folder)
    return scope.leaves_out(name, is_folder=path.endswith("/")) is not None


CACHES = ".git/ .git pkg/__pycache__/ a.pyc web/node_modules/ .venv/ .mypy_cache/ .DS_Store src/._train.py"
SECRETS = ".env .env.local .Env.local deep/er/.envrc server.key ca.crt x/cert.pem certs/Server.PEM ID_RSA id_rsa .ssh/"


@pytest.mark.parametrize("path", [*CACHES.split(), *SECRETS.split()])
def test_caches_environments_and_secrets_are_left_out_by_default(path: str) -> None:
    assert leaves_out(scope(), path)
    assert not leaves_out(scope(no_defaults=True), path)


@pytest.mark.parametrize("path", ["train.py", ".gitignore", "env/", "keys.py", "data/x", "build/"])
def test_files_of_a_project_are_not_left_out_by_default(path: str) -> None:
    assert not leaves_out(scope(), path)


@pytest.mark.parametrize(
    ("lines", "path", "out"),
    [
        ("*.log", "a/b.log", True), ("*.log\n!keep.log", "keep.log", False),
        ("!keep.log\n*.log", "keep.log", True), ("/top", "top", True), ("/top", "a/top", False),
        ("a/b", "a/b", True), ("a/b", "x/a/b", False), ("build/", "build", False),
        ("build/", "x/build/", True), ("build/\n!build/keep", "build/keep", True),
        ("build/*\n!build/keep", "build/keep", False), ("*\n!*/\n!*.py", "a/b.py", False),
        ("*\n!*/\n!*.py", "a/b.txt", True), ("*.txt\n!docs", "docs/a.txt", True),
        ("a/**/z", "a/b/c/z", True), ("**/z/y", "q/z/y", True), ("foo/**", "foo/", False),
        ("foo/**\n!foo/.gitkeep", "foo/.gitkeep", False), ("foo/**", "foo/a/b", True),
        ("**/", "a", False), ("**/", "a/", True), ("a/**/b/*.c", "a/b/x.c", True),
        ("a/**/b/*.c", "a/x/y/b/x.c", True), ("a/*", "a/b/", True), ("[z-a]", "z", True),
        ("[z-a]", "a", False), ("secret[[:digit:]].txt", "secret1.txt", True),
        ("secret[[:digit:]].txt", "secretd.txt", False), ("[![:alpha:]]*", "1a", True),
        ("[[:nonsense:]]", "n", False), ("[[:alpha:]", "a", False), ("[a\\-c]", "-", True),
        ("[a\\-c]", "b", False), ("[]-]x", "]x", True), ("[^]]x", "]x", False),
        ("[a/b]", "a", True), ("a?c", "a/c", False), ("?", "é", False), ("??", "é", True),
        ("secret?\t", "secret1", False), ("secret?\t", "secret1\t", True), ("a\rb", "b", False),
        ("ab**/c", "abc", True), ("x/ab**/c", "x/abd/e/c", True), ("*/ab**/c", "x/abc", False),
        ("a\\", "a", False), ("a\0b", "a", True), ("foo/**", "foo/x", True),
        ("x[0-9]", "x7", True), ("x[!0-9]", "x7", False), ("\\#a", "#a", True),
        ("#a", "#a", False), ("\\!a", "!a", True), ("a\\ ", "a ", True), ("a   ", "a", True),
        ("a\r\nb\r\n", "b", True), ("\ufeffa", "a", True), ("tmp*", "tmpfile", True),
        ("*", "x", True), ("!", "x", False), ("[", "x", False), ("foo", "foo\n", False),
    ],
)  # fmt: skip
def test_lines_have_gits_meaning(lines: str, path: str, out: bool) -> None:
    assert leaves_out(scope(lines), path) is out
    assert leaves_out(scope(own=lines), path) is out


def test_lines_of_kineticignore_precede_gits_and_the_defaults() -> None:
    both = scope(git="*.csv\n!b.bin", own="!a.csv\n!.env.example\n*.bin")

    assert not leaves_out(both, "a.csv")
    assert leaves_out(both, "c.csv")
    assert leaves_out(both, "b.bin")
    assert not leaves_out(both, ".env.example")
    assert leaves_out(both, ".env")


def test_a_list_of_exceptions_in_gitignore_does_not_bring_back_secrets() -> None:
    assert leaves_out(scope(git="*\n!*/\n!.*"), ".env")
    assert leaves_out(scope(git="*\n!*/"), ".git/")


@pytest.mark.parametrize("name", ["a b", "st*r", "[x]", "q?", "back\\slash", "#x", "!x", "end "])
def test_the_line_for_a_path_leaves_out_that_path(name: str) -> None:
    line = ignore_line(f"dir/{name}", is_folder=False)

    assert leaves_out(scope(own=line), f"dir/{name}")
    assert not leaves_out(scope(own=line), "dir/other")
    assert not leaves_out(scope(own=line), name)


def test_rules_of_the_repository_above_the_project_apply(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.ckpt\n/services/ml/data/\n")
    root = tmp_path / "services" / "ml"
    plant(root, "data/x", "a.ckpt", "train.py")

    snapshot = take_snapshot(root)

    assert [entry.path for entry in snapshot.entries] == ["train.py"]
    assert {str(item.rule) for item in snapshot.left_out} == {
        "../../.gitignore:1: *.ckpt",
        "../../.gitignore:2: /services/ml/data/",
    }


def test_rules_of_a_repository_that_ignores_the_project_do_not_apply(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*\n")
    plant(tmp_path, "scratch/train.py")

    assert files(tmp_path / "scratch") == {"train.py"}


@pytest.mark.parametrize(
    ("git", "exclude"),
    [
        (".git", ".git/info/exclude"),
        ("../main/.git/worktrees/w", "../main/.git/info/exclude"),
        ("../main/.git/modules/m", "../main/.git/modules/m/info/exclude"),
    ],
)
def test_paths_in_a_repositorys_exclude_file_are_left_out(
    tmp_path: Path, git: str, exclude: str
) -> None:
    root = tmp_path / "project"
    plant(root, "train.py", "secret.txt", "kept.txt")
    (root / exclude).parent.mkdir(parents=True)
    (root / exclude).write_text("secret.*\nkept.*\n")
    if git != ".git":
        (root / ".git").write_text(f"gitdir: {git}\n")
        (root / git).mkdir(parents=True, exist_ok=True)
    if "worktrees" in git:
        (root / git / "commondir").write_text("../..\n")
    (root / ".gitignore").write_text("!kept.txt\n")

    assert files(root) == {".gitignore", "kept.txt", "train.py"}


def test_a_repository_in_the_project_has_its_own_exclude_file(tmp_path: Path) -> None:
    plant(tmp_path, "lib/.git/info/", "lib/a.log", "lib/b.py", "a.log")
    (tmp_path / "lib/.git/info/exclude").write_text("*.log\n")

    assert files(tmp_path) == {"a.log", "lib/b.py"}
    assert str(take_snapshot(tmp_path).left_out[1].rule) == "lib/.git/info/exclude:1: *.log"


@needs_git
def test_the_users_excludes_file_counts_in_repositories_within_a_plain_folder(
    tmp_path: Path,
) -> None:
    root = tmp_path / "project"
    names = ("secret.txt", "SECRET.TXT", "kept.txt", "sub/anchored")
    plant(root, *(f"{folder}{name}" for folder in ("", "lib/", "lib/inner/") for name in names))
    git("init", "-q", root / "lib")
    git("-C", root / "lib", "config", "core.excludesFile", tmp_path / "mine")
    git("-C", root / "lib", "config", "core.ignoreCase", "true")
    (tmp_path / "mine").write_text("secret.*\nkept.*\n/sub/anchored\n")
    (root / "lib/.gitignore").write_text("!kept.txt\n")
    command = ["git", "-C", root / "lib", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assert files(root) == {*names, *(f"lib/{name}" for name in listed)}


@needs_git
def test_without_a_configured_excludes_file_gits_default_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, config in (("XDG_CONFIG_HOME", "config"), ("HOME", "home/.config")):
        plant(tmp_path, f"{config}/git/")
        (tmp_path / config / "git" / "ignore").write_text(f"{variable}\n")
    root = tmp_path / "project"
    plant(root, "HOME", "XDG_CONFIG_HOME")
    git("init", "-q", root)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert files(root) == {"HOME"}

    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert files(root) == {"XDG_CONFIG_HOME"}


def test_the_rules_of_a_linked_project_are_those_of_the_links_target(tmp_path: Path) -> None:
    plant(tmp_path, "repository/.git/", "repository/ml/a.ckpt", "repository/ml/train.py")
    (tmp_path / "repository" / ".gitignore").write_text("*.ckpt\n")
    (tmp_path / "ml").symlink_to("repository/ml")

    assert files(tmp_path / "ml") == {"train.py"}


def test_a_line_for_a_folder_applies_to_one_that_replaces_a_link(tmp_path: Path) -> None:
    root = tmp_path / "project"
    plant(tmp_path, "home/.aws/credentials", "disk/x", "project/train.py", "project/inside/y")
    goals = {".aws": "../home/.aws", "data": "../disk", "taken": "../disk", "here": "inside"}
    for link, goal in goals.items():
        (root / link).symlink_to(goal)
    (root / ".gitignore").write_text("data/\nhere/\n")

    assert files(root) == {".gitignore", "here", "inside/y", "taken/x", "train.py"}
    ships = Membership(root)
    assert not ships(root / ".aws" / "credentials")
    assert not ships(root / "data" / "x")
    assert ships(root / "taken" / "x")


def test_a_secret_that_a_link_leads_to_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "project"
    plant(tmp_path, "home/.aws/credentials", "home/.SSH/known", "home/.env", "project/train.py")
    plant(tmp_path, "home/.envs/data.py")
    for link, goal in (
        ("cloud", "../home/.aws"),
        ("login.py", "../home/.aws/credentials"),
        ("hosts", "../home/.SSH/known"),
        ("settings", "../home/.env"),
        ("wanted", "../home/.env"),
        ("data.py", "../home/.envs/data.py"),
    ):
        (root / link).symlink_to(goal)
    (root / ".kineticignore").write_text("!wanted\n")

    assert files(root) == {".kineticignore", "data.py", "train.py", "wanted"}
    ships = Membership(root)
    assert not ships(root / "login.py")
    assert not ships(root / "cloud" / "credentials")
    assert ships(root / "data.py")


def test_lines_with_many_stars_are_matched_quickly() -> None:
    rules = scope("*a" * 60 + "b\n/**" + "/x/**" * 20 + "/b\n" + "**/*x*" * 20 + "b")

    for depth in range(40):
        assert rules.leaves_out("a" * 250, is_folder=False) is None, depth
        rules = rules.inner("x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("place", ["", "project", "project/sub"])
def test_an_ignore_file_that_may_not_be_read_is_an_error(tmp_path: Path, place: str) -> None:
    plant(tmp_path, ".git/", "project/sub/secret")
    (tmp_path / ".kineticignore").write_text(".gitignore\n")
    file = tmp_path / place / ".gitignore"
    file.write_text("secret\n")
    file.chmod(0)

    with pytest.raises(PackagingError, match=rf"{file} cannot be read[\s\S]*readable"):
        take_snapshot(tmp_path / "project")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a regular file that fails to be read")
def test_an_ignore_file_whose_disk_fails_is_an_error(tmp_path: Path) -> None:
    plant(tmp_path, ".git/", "project/secret")
    (tmp_path / ".gitignore").symlink_to("/proc/self/mem")

    with pytest.raises(PackagingError, match="Input/output error"):
        take_snapshot(tmp_path / "project")
