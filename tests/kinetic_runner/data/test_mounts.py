"""Private mounts change the process that makes them: each test has one of its own."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kinetic_payload
import kinetic_runner
from kinetic_runner.data import mounts

WHY_NOT = mounts.why_not_private()
# Skipped is what the system does not allow, never what we could not even try.
assert "ModuleNotFoundError" not in str(WHY_NOT), WHY_NOT
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no private mounts: {WHY_NOT}")


def source_of(package: ModuleType) -> str:
    return str(Path(str(package.__file__)).parents[1])


def run_inside(
    binds: dict[str, Path], code: str, *, before: str = "", read_only: list[str] | None = None
) -> list[str]:
    """Run *code* in a process that entered *binds*; return the lines it prints."""
    program = (
        f"import sys; sys.path[:0] = {[source_of(kinetic_runner), source_of(kinetic_payload)]!r}\n"
        "import os, subprocess\nfrom pathlib import Path\nfrom kinetic_runner.data import mounts\n"
        f"{before}\n"
        f"mounts.enter({{{', '.join(f'{p!r}: Path({str(s)!r})' for p, s in binds.items())}}},"
        f" read_only={read_only or []!r})\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
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
def name() -> str:
    """A name at the root of the file system that no other test, and nobody else, uses."""
    return f"/kinetic-test-{os.getpid()}-{os.urandom(4).hex()}"


def test_a_path_that_does_not_exist_appears_inside_only(folder: Path, name: str) -> None:
    assert run_inside({name: folder}, f"print(Path('{name}/x.txt').read_text())") == ["inside"]
    assert not Path(name).exists()


def test_children_see_it_and_the_rest_of_the_machine(folder: Path, name: str) -> None:
    look = f"import os; print(os.listdir('{name}'), os.getcwd(), os.path.exists('/proc/self/fd/0'))"
    inside = run_inside(
        {name: folder},
        f"print(sorted(os.listdir('/')))\n"
        f"print(subprocess.check_output([sys.executable, '-c', {look!r}], text=True), end='')\n"
        "Path('/dev/null').write_text('x')",
    )

    assert inside == [
        str(sorted([*os.listdir("/"), name[1:]])),
        f"['x.txt'] {Path.cwd()} True",
    ]


def test_missing_folders_on_the_way_are_mirrored_below_one_that_exists(
    folder: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "old").mkdir(parents=True)
    (there / "old" / "f").write_text("old")
    (there / "link").symlink_to("old/f")

    seen = run_inside(
        {f"{there}/a/b": folder, f"{there}/a/c": folder},
        f"t = Path({str(there)!r})\n"
        "print((t / 'a/b/x.txt').read_text(), (t / 'a/c/x.txt').read_text(), (t / 'link').read_text())\n"
        "(t / 'old' / 'new').write_text('kept')",
    )

    assert seen == ["inside inside old"]
    assert sorted(os.listdir(there)) == ["link", "old"]
    assert (there / "old" / "new").read_text() == "kept"


def test_what_vanishes_while_its_folder_is_mirrored_is_no_part_of_it(
    folder: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "passing-folder").mkdir(parents=True)
    (there / "passing").write_text("")
    (there / "passing-link").symlink_to("stays")
    (there / "stays").write_text("stays")

    seen = run_inside(
        {f"{there}/a/b": folder},
        f"print(sorted(os.listdir({str(there)!r})))",
        before=f"""
scandir = os.scandir

def listed(path):
    entries = list(scandir(path))
    for entry in entries:
        if entry.name.startswith("passing"):
            os.rename(entry.path, {str(tmp_path)!r} + "/" + entry.name)
    return entries

os.scandir = listed
""",
    )

    assert seen == ["['a', 'stays']"]


def test_an_existing_folder_is_covered_and_not_changed(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "data"
    there.mkdir()
    (there / "mine").write_text("mine")

    seen = run_inside(
        {str(there): folder},
        f"print(os.listdir({str(there)!r})); Path({str(there / 'w')!r}).write_text('w')",
    )

    assert seen == ["['x.txt']"]
    assert os.listdir(there) == ["mine"]
    assert (folder / "w").read_text() == "w"


def test_a_file_can_be_mounted_also_where_a_folder_is(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "conf.json").mkdir()

    seen = run_inside(
        {f"{tmp_path}/conf.json": folder / "x.txt"},
        f"print(Path({str(tmp_path / 'conf.json')!r}).read_text())",
    )

    assert seen == ["inside"]
    assert (tmp_path / "conf.json").is_dir()


def test_what_comes_later_is_seen(folder: Path, name: str) -> None:
    code = f"Path({str(folder / 'late')!r}).write_text('1'); print(sorted(os.listdir('{name}')))"

    assert run_inside({name: folder}, code) == ["['late', 'x.txt']"]


def test_writing_into_a_mirror_fails_aloud(folder: Path, name: str) -> None:
    code = (
        "try: Path('/kinetic-lost').write_text('x')\nexcept OSError as error: print(error.strerror)"
    )

    assert run_inside({name: folder}, code) == ["Read-only file system"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_user_without_privileges_has_private_mounts_too(tmp_path: Path, name: str) -> None:
    # This interpreter may lie where only root can read: nothing is executed or imported anew.
    folder = Path("/tmp") / name[1:]  # pytest's own folders are root's alone
    folder.mkdir(mode=0o755)
    (folder / "x.txt").write_text("inside")
    secret = folder / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    try:
        seen = run_inside(
            {name: folder},
            f"print(Path('{name}/x.txt').read_text(), os.getuid())\n"
            f"try: Path('{name}/secret').read_text()\n"
            "except PermissionError: print('refused')\n"
            "status = Path('/proc/self/status').read_text()\n"
            "print(status.split('CapEff:')[1].split()[0].strip('0') or 'no capabilities')",
            before="import ctypes, kinetic_payload.errors\n"
            "os.chdir('/tmp'); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "ctypes.CDLL(None).prctl(4, 1)",
        )
    finally:
        secret.unlink()
        (folder / "x.txt").unlink()
        folder.rmdir()

    assert seen == ["inside 65534", "refused", "no capabilities"]
    assert not Path(name).exists()


views = pytest.mark.skipif(
    mounts.why_not_read_only() is not None, reason=f"no views: {mounts.why_not_read_only()}"
)

TRY_TO_CHANGE = """
import errno, shutil
def refused(change):
    try: change()
    except OSError as error: return errno.errorcode[error.errno]
    return "changed"
seen = Path({seen!r})
print(refused(lambda: (seen / "new").write_text("n")), refused(lambda: (seen / "x.txt").write_text("n")),
      refused(lambda: (seen / "x.txt").unlink()), refused(lambda: (seen / "x.txt").chmod(0o777)),
      refused(lambda: shutil.rmtree(seen)), refused(lambda: (seen / "x.txt").rename(seen / "y")))
"""


@views
@pytest.mark.parametrize("exists", [True, False])
def test_a_view_shows_a_folder_and_lets_nothing_be_written(
    folder: Path, tmp_path: Path, name: str, exists: bool
) -> None:
    if exists:
        name = str(tmp_path / "there")
        Path(name).mkdir()

    seen = run_inside(
        {name: folder},
        "print(Path('" + name + "/x.txt').read_text())" + TRY_TO_CHANGE.format(seen=name),
        read_only=[name],
    )

    assert seen == ["inside", " ".join(["EROFS"] * 6)]
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("x.txt", "inside")]


@views
def test_a_view_of_a_file_in_a_view_of_a_folder_is_as_read_only(
    folder: Path, tmp_path: Path, name: str
) -> None:
    behind = tmp_path / "empty"
    behind.mkdir()
    (behind / "one.txt").touch()

    seen = run_inside(
        {str(behind / "one.txt"): folder / "x.txt", name: behind},
        f"print(os.listdir('{name}'), Path('{name}/one.txt').read_text())\n"
        f"for path in ('{name}/one.txt', '{name}/two.txt'):\n"
        "    try: Path(path).write_text('n')\n"
        "    except OSError as error: print(error.strerror)",
        read_only=[name],
    )

    assert seen == ["['one.txt'] inside", *["Read-only file system"] * 2]


@views
def test_what_is_mounted_below_a_view_is_seen_and_not_written_to(
    folder: Path, tmp_path: Path, name: str
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "z").write_text("below")

    seen = run_inside(
        {str(inner): other, name: folder},
        f"print(Path('{name}/inner/z').read_text())\n"
        f"try: Path('{name}/inner/z').write_text('n')\n"
        "except OSError as error: print(error.strerror)",
        read_only=[name],
    )

    assert seen == ["below", "Read-only file system"]


@views
def test_the_machines_own_changes_are_seen_through_a_view(folder: Path, name: str) -> None:
    code = f"Path({str(folder / 'late')!r}).write_text('1'); print(sorted(os.listdir('{name}')))"

    assert run_inside({name: folder}, code, read_only=[name]) == ["['late', 'x.txt']"]


def test_what_was_shown_somewhere_can_be_shown_again_after_its_own_path_was_covered(
    folder: Path, tmp_path: Path, name: str
) -> None:
    other, stage = tmp_path / "other", tmp_path / "stage"
    other.mkdir()
    stage.mkdir()

    seen = run_inside(
        {str(stage): folder, str(folder): other, name: stage},
        f"print(os.listdir({str(folder)!r}), os.listdir('{name}'))",
    )

    assert seen == ["[] ['x.txt']"]


@views
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_user_without_privileges_has_views_too(name: str) -> None:
    folder = Path("/tmp") / name[1:]
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "x.txt").write_text("inside")
    try:
        seen = run_inside(
            {name: folder},
            f"print(Path('{name}/x.txt').read_text())\n"
            f"try: Path('{name}/new').write_text('n')\n"
            "except OSError as error: print(error.strerror)",
            before="import ctypes, kinetic_payload.errors\n"
            "os.chdir('/tmp'); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "ctypes.CDLL(None).prctl(4, 1)",
            read_only=[name],
        )
    finally:
        (folder / "x.txt").unlink()
        folder.rmdir()

    assert seen == ["inside", "Read-only file system"]
