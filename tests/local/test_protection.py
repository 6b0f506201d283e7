"""`KINETIC_HOME` on a machine with other users is private, whatever they and the umask do."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError
from kinetic.settings.home import check_home

from .conftest import Project, unprivileged

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


def refusal(home: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        check_home(str(home))
    return caught.value


def follow_hint(error: ConfigurationError) -> None:
    """Run the command that the hint of *error* names."""
    found = re.search(r"Run: (.+)", error.hint or "")
    assert found, error
    subprocess.run(found[1], shell=True, check=True)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_under_every_umask_a_job_runs_and_its_files_are_private(
    project: Project, umask: int
) -> None:
    project.write("main.py", JOB)
    if umask == 0:  # Also the home and its caches, which take long, are made.
        project.home = project.home / "below" / "new"

    done = project.execute(*unprivileged(sys.executable, "main.py"), umask=umask)
    assert done.stdout == "value\n", done.stderr

    (theirs,) = (project.home / "jobs").glob("*/host-0/project")
    for path in [project.home.parent, project.home, *project.home.rglob("*")]:
        if theirs in path.parents:
            continue
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path
    # What the function makes is made as everywhere.
    assert mode_of(theirs / "made") == 0o666 & ~umask
    assert mode_of(theirs / "folder") == 0o777 & ~umask


def test_a_home_that_others_may_write_to_is_refused_by_every_command(project: Project) -> None:
    project.write("main.py", JOB)
    for name, mode in (("", 0o777), ("bundles", 0o775), ("cache", 0o702)):
        (project.home / name).mkdir(exist_ok=True)
        (project.home / name).chmod(mode)
    before = sorted(project.home.rglob("*"))

    refusals = [
        project.run("main.py"),
        project.cli("jobs", "list"),
        project.cli("profile", "create", "mine", "--backend", "local"),
    ]

    for done in refusals:
        assert done.returncode == 1
        for place in (" (mode 0777)", "/bundles (mode 0775)", "/cache (mode 0702)"):
            assert f"{project.home}{place}" in done.stderr
        assert "Run: chmod go-w " in done.stderr
    assert sorted(project.home.rglob("*")) == before, "nothing was written"

    follow_hint(refusal(project.home))

    assert project.run("main.py").stdout == "value\n"


def test_a_readable_home_is_made_private_and_an_open_store_is_used_with_a_warning(
    project: Project,
) -> None:
    store = project.root.parent / "store"
    store.mkdir()
    store.chmod(0o777)
    for folder in (project.home, project.home / "cache"):
        folder.chmod(0o755)
    project.write("main.py", JOB)

    done = project.run("main.py", KINETIC_STORE=str(store))

    assert done.stdout == "value\n"
    assert f"chmod go-w {store}" in done.stderr
    assert mode_of(project.home) == 0o755, "it may hold other things"
    assert mode_of(project.home / "cache") == 0o700


def test_a_home_that_every_user_may_replace_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "open to all"
    above.mkdir()
    above.chmod(0o777)

    error = refusal(above / "home")
    assert f"Other users may replace {above}/home" in error.message

    follow_hint(error)
    check_home(str(above / "home"))
    above.chmod(0o1777)  # As /tmp: others may not rename what is ours.
    check_home(str(above / "home"))


def test_a_link_to_a_home_is_judged_by_the_folder_it_leads_to(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir(mode=0o700)
    link.symlink_to(home)
    check_home(str(link))

    home.chmod(0o777)
    error = refusal(link)

    assert "(mode 0777)" in error.message
    follow_hint(error)
    check_home(str(link))


@pytest.mark.parametrize("to", ["{}/open to all/second", "safe/../open to all/second"])
def test_a_link_on_the_way_to_a_home_must_not_lie_where_every_user_may_replace_it(
    tmp_path: Path, to: str
) -> None:
    above, home = tmp_path / "open to all", tmp_path / "home"
    for folder in (above, home, tmp_path / "safe"):
        folder.mkdir(mode=0o700)
    (above / "second").symlink_to(home)
    (tmp_path / "link").symlink_to(to.format(tmp_path))
    above.chmod(0o777)

    error = refusal(tmp_path / "link")

    assert f"every user may write to {above} (mode" in error.message
    follow_hint(error)
    check_home(str(tmp_path / "link"))


@needs_root
@pytest.mark.parametrize("theirs", ["link", "folder"])
def test_in_a_folder_with_the_sticky_bit_another_users_entry_must_not_lead_to_a_home(
    tmp_path: Path, theirs: str
) -> None:
    folder, home = tmp_path / "sticky", tmp_path / "home"
    folder.mkdir()
    home.mkdir(mode=0o700)
    link = folder / "link"
    link.symlink_to(home)
    folder.chmod(0o1777)
    check_home(str(link))

    os.lchown(link if theirs == "link" else folder, OTHER_USER, OTHER_USER)

    error = refusal(link)
    assert f"Other users may replace {link}" in error.message
    assert f"of user {OTHER_USER}" in error.message


@needs_root
@pytest.mark.parametrize("name", ["", "/jobs", "/store"])
def test_a_home_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    theirs = Path(f"{tmp_path}/home{name}")
    theirs.mkdir(parents=True)
    os.chown(theirs, OTHER_USER, OTHER_USER)

    error = refusal(tmp_path / "home")

    assert f"{theirs} belongs to user {OTHER_USER}" in error.message
    assert f"Run: sudo chown -R {os.geteuid()} {theirs}" in str(error.hint)
    os.chown(theirs, os.geteuid(), os.getegid())
    check_home(str(tmp_path / "home"))


EVIL = "import os; open(os.environ['KINETIC_HOME'] + '/owned', 'w').close()\n"


def test_a_runner_that_was_replaced_is_not_run(project: Project) -> None:
    project.script(JOB)
    runners = [
        runner
        for pattern in ("cache/remote_runner-*.py", "bundles/*/remote_runner.py")
        for runner in project.home.glob(pattern)
    ]
    assert len(runners) == 2
    for runner in runners:
        runner.write_text(EVIL)

    assert project.script(JOB) == "value\n"

    assert not (project.home / "owned").exists()
    assert EVIL.encode() not in [runner.read_bytes() for runner in runners]


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
