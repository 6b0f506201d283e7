"""Private mounts change the process that makes them: each test has one of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_runner.data import mounts

WHY_NOT = mounts.why_not_private()
# Skipped is what the system does not allow, never what we could not even try.
assert "ModuleNotFoundError" not in str(WHY_NOT), WHY_NOT
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no private mounts: {WHY_NOT}")
views = pytest.mark.skipif(
    mounts.why_not_read_only() is not None, reason=f"no views: {mounts.why_not_read_only()}"
)
PROGRAM = """
import errno, os, shutil, subprocess, sys, kinetic_payload.errors
from pathlib import Path
from kinetic_runner.data import mounts

def ls(path): return sorted(os.listdir(path))
def refused(change):
    try: change()
    except OSError as error: return errno.errorcode[error.errno]
    return "changed"
{before}
mounts.enter({{path: Path(source) for path, source in {binds!r}.items()}}, read_only={read_only!r})
"""


def run_inside(
    binds: dict[Path, Path], code: str, *, before: str = "", read_only: list[Path] | None = None
) -> list[str]:
    """Run *code* in a process that has entered *binds*; return the lines it prints."""
    program = PROGRAM.format(
        before=before,
        binds={str(path): str(source) for path, source in binds.items()},
        read_only=[str(path) for path in read_only or []],
    )
    done = subprocess.run(
        [sys.executable, "-c", program + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "behind"
    folder.mkdir()
    (folder / "x.txt").write_text("inside")
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """An existing folder with content."""
    there = tmp_path / "there"
    (there / "old").mkdir(parents=True)
    (there / "old" / "f").write_text("old")
    (there / "link").symlink_to("old/f")
    return there


@pytest.fixture
def new() -> Path:
    """A path at the root of the file system that nothing else uses."""
    return Path(f"/kinetic-test-{os.getpid()}-{os.urandom(4).hex()}")


def test_a_path_that_does_not_exist_appears_for_the_process_and_its_children_only(
    folder: Path, new: Path
) -> None:
    look = f"import os; print(os.listdir('{new}'), os.getcwd(), os.path.exists('/proc/self/fd/0'))"
    inside = run_inside(
        {new: folder},
        "print(ls('/'))\n"
        f"print(subprocess.check_output([sys.executable, '-c', {look!r}], text=True), end='')\n"
        "Path('/dev/null').write_text('x')\n"
        "print(refused(lambda: Path('/kinetic-lost').write_text('x')))\n"
        f"Path('{folder}/late').touch(); print(ls('{new}'))\n",
    )

    assert inside == [
        str(sorted([*os.listdir("/"), new.name])),
        f"['x.txt'] {Path.cwd()} True",
        "EROFS",  # What is written to the mirror of a folder would be lost.
        "['late', 'x.txt']",
    ]
    assert not new.exists()


def test_missing_folders_on_the_way_are_mirrored_below_one_that_exists(
    folder: Path, there: Path
) -> None:
    seen = run_inside(
        {there / "a/b": folder, there / "a/c": folder},
        f"t = Path('{there}')\n"
        "print((t / 'a/b/x.txt').read_text(), (t / 'a/c/x.txt').read_text(), (t / 'link').read_text())\n"
        "(t / 'old' / 'new').write_text('kept')",
    )

    assert seen == ["inside inside old"]
    assert sorted(os.listdir(there)) == ["link", "old"]
    assert (there / "old" / "new").read_text() == "kept"


VANISHING = """
scandir = os.scandir

def listed(path):
    entries = list(scandir(path))
    for entry in entries:
        if entry.name in ("old", "link", "file"):
            os.rename(entry.path, "{away}/" + entry.name)
    return entries

os.scandir = listed
"""


def test_entries_that_vanish_while_their_folder_is_mirrored_are_left_out(
    folder: Path, there: Path, tmp_path: Path
) -> None:
    (there / "file").touch()
    (there / "stays").touch()

    seen = run_inside(
        {there / "a/b": folder}, f"print(ls('{there}'))", before=VANISHING.format(away=tmp_path)
    )

    assert seen == ["['a', 'stays']"]


def test_an_existing_folder_is_covered_and_not_changed(folder: Path, there: Path) -> None:
    seen = run_inside(
        {there: folder},
        f"print(ls('{there}')); Path('{there}/w').write_text('w')",
    )

    assert seen == ["['x.txt']"]
    assert sorted(os.listdir(there)) == ["link", "old"]
    assert (folder / "w").read_text() == "w"


def test_a_file_can_be_mounted_also_where_a_folder_is(folder: Path, there: Path) -> None:
    seen = run_inside({there / "old": folder / "x.txt"}, f"print(Path('{there}/old').read_text())")

    assert seen == ["inside"]
    assert (there / "old").is_dir()


def test_a_folder_can_be_shown_again_after_its_own_path_was_covered(
    folder: Path, tmp_path: Path, new: Path
) -> None:
    other, stage = tmp_path / "other", tmp_path / "stage"
    other.mkdir()
    stage.mkdir()

    seen = run_inside(
        {stage: folder, folder: other, new: stage}, f"print(ls('{folder}'), ls('{new}'))"
    )

    assert seen == ["[] ['x.txt']"]


@views
@pytest.mark.parametrize("exists", [True, False])
def test_a_view_shows_a_folder_and_lets_nothing_be_written(
    folder: Path, there: Path, new: Path, exists: bool
) -> None:
    path = there if exists else new
    code = f"""
seen = Path("{path}")
file = seen / "x.txt"
changes = [
    lambda: (seen / "new").write_text("n"), lambda: file.write_text("n"), file.unlink,
    lambda: file.chmod(0o777), lambda: shutil.rmtree(seen), lambda: file.rename(seen / "y"),
]
print(file.read_text(), {{*map(refused, changes)}})
Path("{folder}/late").touch()
print(ls(seen))
"""

    # Changes of the machine's own are seen.
    assert run_inside({path: folder}, code, read_only=[path]) == [
        "inside {'EROFS'}",
        "['late', 'x.txt']",
    ]
    assert (folder / "x.txt").read_text() == "inside"


@views
def test_mounts_below_a_view_are_visible_and_read_only(
    folder: Path, tmp_path: Path, new: Path
) -> None:
    shown = tmp_path / "shown"
    (shown / "inner").mkdir(parents=True)
    (shown / "one.txt").touch()

    seen = run_inside(
        {shown / "one.txt": folder / "x.txt", shown / "inner": folder, new: shown},
        f"one, inner = Path('{new}/one.txt'), Path('{new}/inner/x.txt')\n"
        f"print(ls('{new}'), one.read_text(), inner.read_text())\n"
        f"for path in (one, inner, Path('{new}/new.txt')): print(refused(lambda: path.write_text('n')))",
        read_only=[new],
    )

    assert seen == ["['inner', 'one.txt'] inside inside", "EROFS", "EROFS", "EROFS"]


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that each user can read and write to: those of pytest are root's alone."""
    folder = Path(f"/tmp/kinetic-test-{os.urandom(4).hex()}")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "x.txt").write_text("inside")
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@views
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_privileges_has_private_mounts_and_views_too(
    readable: Path, new: Path
) -> None:
    (readable / "secret").touch(0o600)
    view = Path(f"{new}-view")

    seen = run_inside(
        {new: readable, view: readable},
        f"print(Path('{new}/x.txt').read_text(), os.getuid())\n"
        f"print(refused(lambda: Path('{new}/secret').read_text()))\n"
        f"print(refused(lambda: Path('{new}/new').touch()), refused(lambda: Path('{view}/n').touch()))\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(status.split('CapEff:')[1].split()[0].strip('0') or 'no capabilities')",
        # This interpreter may lie where only root can read: nothing is executed or imported afterwards.
        before="import ctypes; os.chdir('/tmp'); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 1)",
        read_only=[view],
    )

    assert seen == ["inside 65534", "EACCES", "changed EROFS", "no capabilities"]
    assert not new.exists()
