"""A project whose calls are shipped to another process that has its snapshot and nothing else."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

MACHINE = Path(__file__).parent / "projects" / "machine"
"""`shipping.py`, which the client's scripts import, and the worker to which it ships calls."""


class Project:
    """A user's project, and the machine that submits its calls."""

    def __init__(self, folder: Path, copy_project: Callable[[str, Path], None]) -> None:
        self.root = folder / "project"
        self.outside = folder / "outside"
        self._folder = folder
        self._copy_project = copy_project
        for path in (self.root, self.outside, folder / "workspace"):
            path.mkdir()
        shutil.copytree(MACHINE, folder / "machine", copy_function=shutil.copyfile)

    def copy(self, name: str) -> None:
        """Put a fixture project into the project: *name* is a file or folder of `projects`, beside the test."""
        self._copy_project(name, self.root)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the project."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def write_all(self, text: str) -> None:
        """Write files of the project; a comment with its name alone begins each one: `# lib.py`."""
        names_and_texts = re.split(r"^# (\S+\.py)\n", textwrap.dedent(text), flags=re.MULTILINE)[1:]
        for name, content in zip(names_and_texts[::2], names_and_texts[1::2], strict=True):
            self.write(name, content)

    def run(
        self,
        *command: str,
        paths: str = "",
        ignored: str = "",
        on_path: tuple[Path, ...] = (),
        main: str | None = None,
        kind: str = "script",
        python: str = sys.executable,
    ) -> str:
        """Run Python with *command* in the project and return its output, without the line's end.

        *paths* are the entries of `sys.path` below the root, as `roots` would find them.
        """
        machine = self._folder / "machine"
        entries = [self.root / path for path in paths.split(":")] + [machine, *on_path]
        env = os.environ | {  # noqa: TID251 - what the child inherits
            "PYTHONPATH": os.pathsep.join(str(entry) for entry in entries),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_ROOT": str(self.root),
            "TEST_WORKSPACE": str(self._folder / "workspace"),
            "TEST_WORKER": str(machine / "worker" / "worker.py"),
            "TEST_PATHS": paths,
            "TEST_IGNORED": ignored,
            "TEST_MAIN": main if main is not None else next(iter(command)),
            "TEST_KIND": kind,
        }
        process = subprocess.Popen(
            [python, *command],
            cwd=self.root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            # With a limit, whichever, what was read is not lost when the test's time is over.
            output, _ = process.communicate(timeout=3600)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            print(process.communicate()[0][-3000:])
            raise
        assert process.returncode == 0, output
        return output.rstrip("\n")


@pytest.fixture
def project(tmp_path: Path, copy_project: Callable[[str, Path], None]) -> Project:
    """Return an empty project."""
    return Project(tmp_path, copy_project)


@pytest.fixture
def with_another_path() -> Callable[[Path, str], str]:
    """Return what runs code in a place where one folder has two paths; see there."""
    return _with_another_path


def _with_another_path(folder: Path, code: str) -> str:
    """Run *code* where *folder* is mounted at `other` beside it as well; return what it printed.

    To a program that is one folder under two names, which no link tells: as `Data` and `data` are on
    the file systems of macOS.
    """
    other = folder.with_name("other")
    other.mkdir()
    enter = ["unshare", "--map-root-user", "--mount"]
    if sys.platform != "linux" or subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("no mounts for users here")
    mount = f"import os, subprocess\nsubprocess.run(['mount', '--bind', {str(folder)!r}, {str(other)!r}], check=True)"
    names = f"from pathlib import Path\nfolder, other = Path({str(folder)!r}), Path({str(other)!r})"
    script = "\n".join((mount, names, textwrap.dedent(code)))
    done = subprocess.run([*enter, sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
