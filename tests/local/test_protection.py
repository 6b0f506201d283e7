"""`KINETIC_HOME` on a machine with other users: who they are and what the umask is changes nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Project
from .test_clients import unprivileged

OTHER_USER = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

JOB = """
import os, kinetic

@kinetic.run(accelerator="cpu")
def work():
    open("made", "w").close()
    os.mkdir("folder")
    return "value"

if __name__ == "__main__":
    print(work.run_async().result(cleanup=False))
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextlib.contextmanager
def reachable() -> Iterator[Path]:
    """Yield a folder that other users can enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="kinetic-protection-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def kinetic(project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kinetic_cli", *args],
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def command_in(text: str) -> str:
    """Return the command that a message says to run."""
    found = re.search(r"Run: (.+)", text)
    assert found, text
    return found[1]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_under_every_umask_a_job_runs_and_what_is_kept_is_private(
    project: Project, umask: int
) -> None:
    project.write("main.py", JOB)
    project.home = project.home / "below" / "new"

    command = unprivileged(sys.executable, "main.py")
    done = subprocess.run(
        command,
        cwd=project.root,
        env=project.environment,
        umask=umask,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "value\n", done.stderr

    (theirs,) = (project.home / "jobs").glob("*/host-0/project")
    for path in [project.home.parent, project.home, *project.home.rglob("*")]:
        if theirs in path.parents:
            continue
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path
    # What the function makes is made as everywhere.
    assert mode_of(theirs / "made") == 0o666 & ~umask
    assert mode_of(theirs / "folder") == 0o777 & ~umask


@needs_root
def test_another_user_can_change_nothing_that_was_made_under_a_umask_of_000(
    project: Project,
) -> None:
    with reachable() as folder:
        project.home = folder / "home"
        project.write("main.py", JOB)
        subprocess.run(
            [sys.executable, "main.py"],
            cwd=project.root,
            env=project.environment,
            umask=0,
            check=True,
        )
        paths = [str(path) for path in (project.home, *project.home.rglob("*"))]
        look = 'for path; do if [ -w "$path" ]; then echo "$path"; fi; done'
        attack = ["sh", "-c", look, "-", *paths]
        control = folder / "open"
        control.mkdir()
        control.chmod(0o777)

        assert _as_other_user([*attack, str(control)]) == f"{control}\n"


def _as_other_user(command: list[str]) -> str:
    return subprocess.run(
        command,
        cwd="/",
        user=OTHER_USER,
        group=OTHER_USER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("opened", [0o777, 0o775, 0o702])
def test_a_home_that_others_may_write_to_is_refused_everywhere_until_its_command_was_run(
    project: Project, opened: int
) -> None:
    project.write("main.py", JOB)
    for folder in (project.home, project.home / "bundles", project.home / "cache"):
        folder.mkdir(exist_ok=True)
        folder.chmod(opened)
    before = sorted(project.home.rglob("*"))

    refusals = [
        project.run("main.py"),
        kinetic(project, "jobs", "list"),
        kinetic(project, "jobs", "result", "cpu-work-20260101-000000-abcdef0"),
        kinetic(project, "profile", "ls"),
        kinetic(project, "profile", "create", "mine", "--backend", "local"),
    ]

    for done in refusals:
        assert done.returncode == 1
        assert f"{project.home}/bundles (mode {opened:04o})" in done.stderr
        assert command_in(done.stderr).startswith("chmod go-w ")
    assert sorted(project.home.rglob("*")) == before, "nothing was written"

    subprocess.run(command_in(refusals[0].stderr), shell=True, check=True)

    assert project.run("main.py").stdout == "value\n"
    assert kinetic(project, "jobs", "list").returncode == 0


def test_folders_that_an_earlier_version_made_for_others_to_read_are_made_private(
    project: Project,
) -> None:
    project.home.chmod(0o755)
    (project.home / "cache").chmod(0o755)

    project.script(JOB)

    assert mode_of(project.home) == 0o755, "it may hold other things"
    assert mode_of(project.home / "cache") == 0o700


def test_a_home_that_everybody_may_replace_is_refused(project: Project) -> None:
    above = project.root.parent / "open to all"
    above.mkdir()
    project.home = above / "home"
    project.write("main.py", JOB)

    above.chmod(0o777)
    refused = project.run("main.py")
    assert "Other users may replace" in refused.stderr
    assert not project.home.exists()

    subprocess.run(command_in(refused.stderr), shell=True, check=True)
    assert project.run("main.py").stdout == "value\n"
    above.chmod(0o1777)  # As /tmp: others may not rename what is ours.
    assert project.run("main.py").stdout == "value\n"


def test_a_link_to_a_home_is_judged_by_what_it_leads_to(project: Project) -> None:
    real = project.home
    project.home = project.root.parent / "link"
    project.home.symlink_to(real)
    assert project.script(JOB) == "value\n"

    real.chmod(0o777)

    refused = project.run("main.py")
    assert "(mode 0777)" in refused.stderr
    subprocess.run(command_in(refused.stderr), shell=True, check=True)
    assert project.run("main.py").stdout == "value\n"


@pytest.mark.parametrize("to", ["second", "../open to all/second"])
def test_no_link_on_the_way_to_a_home_lies_where_everybody_may_replace_it(
    project: Project, to: str
) -> None:
    above = project.root.parent / "open to all"
    above.mkdir()
    (above / "second").symlink_to(project.home)
    (above / "first").symlink_to(to)
    link = project.root.parent / "link"
    link.symlink_to(above / "first")
    project.home = link
    project.write("main.py", JOB)
    above.chmod(0o777)

    refused = project.run("main.py")

    assert f"every user may write to {above} (mode" in refused.stderr
    subprocess.run(command_in(refused.stderr), shell=True, check=True)
    assert project.run("main.py").stdout == "value\n"


@needs_root
@pytest.mark.parametrize("theirs", ["link", "folder"])
def test_in_a_folder_with_the_sticky_bit_nothing_of_another_user_leads_to_a_home(
    project: Project, theirs: str
) -> None:
    with reachable() as folder:
        (folder / "link").symlink_to(project.home)
        project.home = folder / "link"
        project.write("main.py", JOB)
        folder.chmod(0o1777)
        assert project.run("main.py").stdout == "value\n"

        os.lchown(folder / "link" if theirs == "link" else folder, OTHER_USER, OTHER_USER)

        refused = project.run("main.py")
        assert f"Other users may replace {project.home}" in refused.stderr
        assert f"of user {OTHER_USER}" in refused.stderr


@needs_root
@pytest.mark.parametrize("name", ["", "/jobs", "/store"])
def test_a_home_of_another_user_is_refused(project: Project, name: str) -> None:
    project.write("main.py", JOB)
    theirs = Path(f"{project.home}{name}")
    theirs.mkdir(exist_ok=True)
    os.chown(theirs, OTHER_USER, OTHER_USER)

    refused = project.run("main.py")

    assert f"{theirs} belongs to user {OTHER_USER}" in refused.stderr
    assert command_in(refused.stderr) == f"sudo chown -R {os.geteuid()} {theirs}"
    os.chown(theirs, os.geteuid(), os.getegid())
    assert project.run("main.py").stdout == "value\n"


def test_a_named_store_that_others_may_write_to_is_used_with_a_warning(project: Project) -> None:
    store = project.root.parent / "store"
    store.mkdir()
    project.write("main.py", JOB)

    store.chmod(0o777)
    warned = project.run("main.py", KINETIC_STORE=str(store))
    store.chmod(0o755)
    quiet = project.run("main.py", KINETIC_STORE=str(store))

    assert warned.stdout == quiet.stdout == "value\n"
    assert f"chmod go-w {store}" in warned.stderr
    assert "other users" not in quiet.stderr


EVIL = "import os; open(os.environ['KINETIC_HOME'] + '/owned', 'w').close()\n"


@pytest.mark.parametrize("where", ["cache/remote_runner-*.py", "bundles/*/remote_runner.py"])
def test_a_runner_that_was_replaced_is_not_run(project: Project, where: str) -> None:
    project.script(JOB)
    (runner,) = project.home.glob(where)
    runner.write_text(EVIL)

    assert project.script(JOB) == "value\n"

    assert not (project.home / "owned").exists()
    assert runner.read_bytes() != EVIL.encode()


def test_a_runner_that_changes_between_attempts_is_not_run_again(project: Project) -> None:
    project.write(
        "main.py",
        """
        import glob, os, kinetic

        @kinetic.run(accelerator="cpu", retries=1)
        def work():
            (runner,) = glob.glob(os.environ["KINETIC_HOME"] + "/bundles/*/remote_runner.py")
            with open(runner, "ab") as stream:
                stream.write(b"changed")
            raise RuntimeError(os.environ["KINETIC_ATTEMPT"])

        if __name__ == "__main__":
            try:
                work()
            except kinetic.KineticError as error:
                print(error)
        """,
    )

    done = project.run("main.py")

    assert "The runner was changed since the job began" in done.stdout, done.stderr
