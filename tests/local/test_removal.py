"""Removal of folders that user code wrote into, by a user without privileges."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kinetic.backends.local.backend import LocalBackend
from kinetic.home.paths import Home
from kinetic.home.removal import remove_tree
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.launches import a_launch

NOBODY = 65_534


def as_a_user(code: str, folder: Path) -> str:
    """Run *code* in *folder* as a user who is not root; return what it printed."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    script = f"""
import os
from kinetic.home.removal import remove_tree
os.chdir({str(folder)!r})  # Its parents may be closed to others.
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
{textwrap.dedent(code)}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_read_only_folders_are_removed_and_targets_of_links_are_kept(tmp_path: Path) -> None:
    printed = as_a_user(
        """
        os.makedirs("job/a/b")
        os.makedirs("theirs")
        for name in ("job/a/b/file", "job/a/file", "theirs/file"):
            open(name, "w").close()
            os.chmod(name, 0o400)
        os.symlink(os.path.abspath("theirs"), "job/a/link")
        for folder, mode in (("theirs", 0o555), ("job/a/b", 0), ("job/a", 0o555), ("job", 0o500)):
            os.chmod(folder, mode)
        print(remove_tree("job"), os.path.exists("job"))
        print(oct(os.stat("theirs").st_mode & 0o777), os.listdir("theirs"))
        """,
        tmp_path,
    )
    assert printed == "() False\n0o555 ['file']\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files need root to make")
def test_a_file_of_another_user_is_kept_and_named(tmp_path: Path) -> None:
    theirs = tmp_path / "job" / "inner" / "of-root"
    theirs.mkdir(parents=True)
    (theirs / "file").touch()
    (tmp_path / "job" / "ours").touch()
    for folder in (theirs.parent, theirs.parent.parent):
        os.chown(folder, NOBODY, NOBODY)

    printed = as_a_user("print(*remove_tree('job'), sep=' and ')", tmp_path)

    assert printed == "job/inner/of-root/file: Permission denied\n"
    assert [*tmp_path.rglob("*")] == [theirs.parent.parent, theirs.parent, theirs, theirs / "file"]


def test_a_link_is_removed_and_its_target_is_kept(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    (tmp_path / "job").symlink_to("theirs")

    assert remove_tree(str(tmp_path / "job")) == ()

    assert [*tmp_path.rglob("*")] == [tmp_path / "theirs", tmp_path / "theirs" / "file"]
    assert remove_tree(str(tmp_path / "job")) == (), "it is gone already"


def where_it_is_mounted(theirs: Path, inside: Path, code: str) -> str:
    """Run *code* where *theirs* is mounted at *inside*, which ends with it; return what it printed."""
    for folder in (inside, theirs):
        folder.mkdir(parents=True)
    (theirs / "file").touch()
    mount = (
        f"import subprocess\nsubprocess.run(['mount', '--bind', {str(theirs)!r}, {str(inside)!r}])"
    )
    enter = ["unshare", "--map-root-user", "--mount"]
    if sys.platform != "linux" or subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("no mounts for users here")
    script = f"{mount}\n{textwrap.dedent(code)}"
    done = subprocess.run([*enter, sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_removed_where_a_file_system_is_mounted(tmp_path: Path) -> None:
    job, theirs = tmp_path / "a job", tmp_path / "theirs"
    inside = job / "their data"

    printed = where_it_is_mounted(
        theirs,
        inside,
        f"""
        from kinetic.home.removal import remove_tree
        print(*remove_tree({str(job)!r}))
        """,
    )

    assert printed == f"{inside}: a file system is mounted there\n"
    assert (theirs / "file").exists()


def test_a_clean_up_warns_of_files_it_had_to_leave(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    record = a_launch(store, "pass").record
    workspace = Path(Home(str(tmp_path)).job(record.job_id).workspace(0))

    printed = where_it_is_mounted(
        tmp_path / "theirs",
        workspace / "data",
        f"""
        import warnings
        from pathlib import Path
        from kinetic.backends.local.backend import LocalBackend
        from kinetic_servers.fakes import a_record
        from kinetic_payload.stores.folder.store import FolderStore

        backend = LocalBackend(Path({str(tmp_path)!r}), FolderStore(Path({str(tmp_path)!r}, "store")))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            backend.stop(a_record(job_id={record.job_id!r}), timeout=60, poll_interval=0.1, remove=True)
        print(*(one.message for one in caught), list(backend.list()))
        """,
    )

    assert "a file system is mounted there" in printed
    assert printed.endswith("when you can. []\n")
    assert (tmp_path / "theirs" / "file").exists()


def test_leftovers_of_an_interrupted_removal_are_removed_by_the_next(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    record = a_launch(store, "pass").record
    backend, job = LocalBackend(tmp_path, store), Home(str(tmp_path)).job(record.job_id)
    left, other = (
        tmp_path / "jobs" / f".{job_id}.01234567"
        for job_id in (record.job_id, f"a-{record.job_id}")
    )
    for folder in (left, other):
        (folder / "attempt-1").mkdir(parents=True)

    backend.stop(record, timeout=60, poll_interval=0.1, remove=True)
    assert [*Path(job.path).parent.iterdir()] == [other]

    with backend.announced(record):  # It is about to start, and is not what is left of anything.
        LocalBackend(tmp_path, store).stop(record, timeout=60, poll_interval=0.1, remove=True)
        assert len([*other.parent.iterdir()]) == 2
