"""Private mounts change the process that makes them: each test has one of its own."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kinetic_payload
import kinetic_runner
from kinetic_runner import mounts

pytestmark = pytest.mark.skipif(
    mounts.why_not_private() is not None, reason=f"no private mounts: {mounts.why_not_private()}"
)


def source_of(package: ModuleType) -> str:
    return str(Path(str(package.__file__)).parents[1])


def run_inside(binds: dict[str, Path], code: str, *, before: str = "") -> list[str]:
    """Run *code* in a process that entered *binds*; return the lines it prints."""
    program = (
        f"import sys; sys.path[:0] = {[source_of(kinetic_runner), source_of(kinetic_payload)]!r}\n"
        "import os, subprocess\nfrom pathlib import Path\nfrom kinetic_runner import mounts\n"
        f"{before}\n"
        f"mounts.enter({{{', '.join(f'{p!r}: Path({str(s)!r})' for p, s in binds.items())}}})\n{code}"
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
