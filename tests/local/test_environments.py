"""Isolated environments are made once for all processes that ask for them, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from file_server import FileServer, running_file_server

from kinetic.home.environments import (
    COMPLETE,
    LAST_USED,
    VirtualEnvironment,
    ensure_environment,
    remove_environment,
)
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.uv import find_uv

from .conftest import write_wheel

MADE = ["pip compile", "venv --no-project", "pip install"]
"""The runs of uv that make one environment."""


class Project:
    """A project with a folder of wheels instead of an index, and a uv that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.root = folder / "project"
        self.wheels = self.root / "wheels"
        self.log = folder / "uv.log"
        self.wheels.mkdir(parents=True)
        (self.root / ".git").mkdir()
        counting = folder / "bin" / "uv"
        counting.parent.mkdir()
        counting.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] || echo "$2 $3" >> {self.log}\n'
            f'exec {find_uv().program} "$@"\n'
        )
        counting.chmod(0o755)
        self.environ = {"PATH": str(counting.parent), "HOME": str(folder), "UV_OFFLINE": "1"}

    def wheel(self, name: str, *needs: str, version: str = "1.0") -> None:
        write_wheel(self.wheels, name, version, {f"{name}.py": f"version = {version!r}\n"}, *needs)

    def require(self, *lines: str) -> None:
        text = "\n".join(("--no-index", "--find-links wheels", *lines))
        (self.root / "requirements.txt").write_text(text)

    def ensure(self, **options: Any) -> VirtualEnvironment:
        return ensure_environment(self.root, home=self.home, environ=self.environ, **options)

    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def kept(self) -> list[str]:
        return [path.name for path in (self.home / "environments").glob("*/")]


def a_project(folder: Path) -> Project:
    made = Project(folder)
    made.wheel("alpha", version="1.0")
    made.wheel("alpha", version="2.0")
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project without requirements, whose environment several tests damage or remove."""
    made = a_project(tmp_path_factory.mktemp("shared"))
    made.require()
    return made


def run(environment: VirtualEnvironment, code: str) -> str:
    command = [str(environment.python), "-I", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def version(environment: VirtualEnvironment, module: str) -> str:
    return run(environment, f"import {module}; print({module}.version)")


def test_an_environment_holds_the_projects_packages_and_cloudpickle_and_is_reused(
    project: Project,
) -> None:
    project.require("alpha<2", "--prefer-binary")
    reports: list[str] = []
    environment = project.ensure(report=reports.append)
    prefix = environment.python.parents[1]
    assert prefix.parent == project.home / "environments" / environment.digest
    assert list(prefix.rglob("alpha*.pyc"))
    code = (
        "import alpha, cloudpickle, sys; print(alpha.version, cloudpickle.__version__, sys.prefix)"
    )
    assert run(environment, code) == f"1.0 {cloudpickle.__version__} {prefix}"
    code = "import importlib.util as u; print(u.find_spec('msgspec'), u.find_spec('kinetic'))"
    assert run(environment, code) == "None None"
    assert project.runs() == MADE

    mark = prefix.parent / LAST_USED
    mark.unlink()
    project.require("# a comment", "", "Alpha <2", "--prefer-binary")

    assert project.ensure(report=reports.append).python == environment.python
    assert project.runs() == MADE
    assert mark.exists()
    assert reports[:2] == [
        f"Resolving the dependencies in {project.root}/requirements.txt with uv.",
        "Making an isolated environment with 2 packages.",
    ]
    # A note is printed once by each process.
    assert [one for one in reports if "--prefer-binary" in one] == reports[3:]


def complete(environment: VirtualEnvironment) -> Path:
    return environment.python.parents[2] / COMPLETE


def lose_interpreter(environment: VirtualEnvironment) -> None:
    environment.python.unlink()
    environment.python.symlink_to(environment.python.parent / "gone")


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: complete(one).unlink(),
        lambda one: complete(one).write_text(""),
        lambda one: complete(one).write_text("{}"),
        lambda one: complete(one).write_text("[]"),
        lambda one: complete(one).chmod(0o777),
        lambda one: complete(one).parent.chmod(0o777),
        lose_interpreter,
    ],
)
def test_an_environment_that_is_damaged_or_open_to_other_users_is_made_again(
    shared: Project, damage: Callable[[VirtualEnvironment], object]
) -> None:
    first = shared.ensure()
    damage(first)

    second = shared.ensure()

    assert second.digest == first.digest
    assert second.python != first.python
    assert not first.python.exists()
    assert run(second, "import cloudpickle; print(1)") == "1"


def test_an_environment_is_removed_unless_it_was_used_later(shared: Project) -> None:
    environment = shared.ensure()
    mark = shared.home / "environments" / environment.digest / LAST_USED
    used = mark.stat().st_mtime
    assert not remove_environment(shared.home, environment.digest, unused_since=used)
    assert shared.ensure().python == environment.python
    os.utime(mark, (used - 100, used - 100))

    assert remove_environment(shared.home, environment.digest, unused_since=used - 50)

    assert not environment.python.exists()
    assert not remove_environment(shared.home, environment.digest)
    assert shared.ensure().python.exists()


def test_without_dependencies_there_is_a_note_and_another_python_is_refused(
    shared: Project,
) -> None:
    requirements = (shared.root / "requirements.txt").read_text()
    (shared.root / "requirements.txt").unlink()
    try:
        assert "declares dependencies" in shared.ensure().notes[0]
        pyproject = shared.root / "pyproject.toml"
        pyproject.write_text('[project]\nname = "p"\nversion = "1"\nrequires-python = "<3"\n')
        with pytest.raises(DependencyError, match=r"requires Python <3, and .* on Python 3\."):
            shared.ensure()
        pyproject.unlink()
    finally:
        (shared.root / "requirements.txt").write_text(requirements)


def test_for_a_bucket_an_environment_has_a_client_of_buckets_too(project: Project) -> None:
    project.wheel("google_cloud_storage", version="2.9")
    project.wheel("google_cloud_storage", version="3.4")
    project.require()
    plain, other = project.ensure(), project.ensure(bucket=True)
    assert plain.digest != other.digest
    assert version(other, "google_cloud_storage") == "3.4"

    # The project's own requirement counts.
    project.require("Google-Cloud_Storage<3")
    environment = project.ensure(bucket=True)
    assert environment == project.ensure()
    assert version(environment, "google_cloud_storage") == "2.9"


def test_packages_of_ours_are_the_clients_copies_and_never_from_an_index(project: Project) -> None:
    # Packages of those names by a stranger, which an index could serve.
    project.wheel("kinetic_payload", version="99")
    for name in ("isal", "msgspec", "cloudpickle"):
        project.wheel(name, version="99")
    project.wheel("plugin", "kinetic-payload")
    project.require("Kinetic_Payload==99", "plugin")
    environment = project.ensure()
    code = "import kinetic_payload.layout as l, plugin; print(l.WIRE_VERSION)"
    assert run(environment, code) == "1"
    assert "kinetic-payload==99 is not taken from an index" in environment.notes[0]


@pytest.mark.parametrize(("requirement", "noted"), [("cloudpickle==2.0", False), ("old", True)])
def test_the_cloudpickle_that_a_project_requires_is_installed(
    project: Project, requirement: str, noted: bool
) -> None:
    project.wheel("cloudpickle", version="2.0")
    project.wheel("old", "cloudpickle<3")
    project.require(requirement)
    environment = project.ensure()
    assert version(environment, "cloudpickle") == "2.0"
    assert any("cloudpickle" in note for note in environment.notes) is noted


@pytest.mark.parametrize("place", ["variable", "file"])
def test_an_environment_outlives_uvs_cache(project: Project, place: str) -> None:
    cache = project.folder / "cache"
    project.environ["UV_CACHE_DIR"] = str(cache)
    if place == "variable":
        project.environ["UV_LINK_MODE"] = "symlink"
    else:
        (project.root / "uv.toml").write_text('link-mode = "symlink"\n')
    project.wheel("alpha")
    project.require("alpha")
    made = project.ensure()
    shutil.rmtree(cache)
    subprocess.run([made.python, "-c", "import alpha, cloudpickle"], check=True)


def start(project: Project, root: Path, path: Path, **environ: str) -> subprocess.Popen[str]:
    """Start a process two of whose threads make the environment of *root* with the uv in *path*."""
    script = Path(__file__).parent / "projects" / "ensure.py"
    command = [sys.executable, str(script), str(root), str(project.home), str(path)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},  # noqa: TID251 - a child's begins with ours
    )


def slow_uv(project: Project, action: str, before: str = "compile") -> Path:
    """Return a folder with a uv that runs *action* in the shell before it resolves, or installs."""
    slow = project.folder / "slow" / "uv"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\nif [ "$2 $3" = "pip {before}" ] ; then {action} ; fi\nexec {project.folder}/bin/uv "$@"\n'
    )
    slow.chmod(0o755)
    return slow.parent


def test_a_thread_that_waits_for_an_attempt_whose_uv_is_killed_makes_the_environment(
    project: Project,
) -> None:
    project.require("alpha")
    waiting = project.folder / "waiting"
    os.mkfifo(waiting)
    waiting.with_suffix(".not-yet").touch()
    slow = slow_uv(
        project, f"if rm {waiting}.not-yet ; then read x < {waiting} ; kill -TERM $$ ; fi"
    )
    project.environ["PATH"] = f"{slow}:{os.defpath}"

    def report(text: str) -> None:
        if "waiting" in text:
            waiting.write_text("\n")

    def ensure(_: int) -> VirtualEnvironment | InstallError:
        try:
            return project.ensure(report=report)
        except InstallError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(ensure, range(2))]

    [failure] = [end for end in ends if isinstance(end, InstallError)]
    assert failure.killed
    [made] = [end for end in ends if isinstance(end, VirtualEnvironment)]
    assert version(made, "alpha") == "2.0"


def test_a_killed_maker_delays_no_other_process_and_its_uv_damages_nothing(
    project: Project,
) -> None:
    project.require("alpha")
    started, released = project.folder / "started", project.folder / "released"
    os.mkfifo(started)
    os.mkfifo(released)
    slow = slow_uv(project, f"exec 9> {started}; echo >&9; read x < {released}", "install")
    temporary = project.folder / "tmp"
    temporary.mkdir()
    maker = start(project, project.root, slow, TMPDIR=str(temporary))
    with started.open() as orphaned:
        assert orphaned.readline() == "\n"
        maker.kill()
        maker.communicate()
        made = project.ensure()
        released.write_text("\n")  # The orphaned uv goes on,
        assert orphaned.read() == ""  # and ends.
    assert version(made, "alpha") == "2.0"
    assert project.ensure() == made
    assert not list(temporary.iterdir())


def test_a_failing_build_is_shown_with_its_output_and_line_and_leaves_nothing(
    project: Project,
) -> None:
    source = project.folder / "broken-1.0"
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (source / "pyproject.toml").write_text(
        '[project]\nname = "broken"\nversion = "1.0"\n[build-system]\nrequires = []\n'
        'build-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text("raise SystemExit('no compiler here')\n")
    with tarfile.open(project.wheels / "broken-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "broken-1.0")
    project.require("alpha", "broken")
    with pytest.raises(InstallError, match="no compiler here") as caught:
        project.ensure()
    assert caught.value.places == (f"{project.root}/requirements.txt:4",)
    assert project.kept() == []


def test_a_file_of_the_kept_lock_that_has_vanished_is_named_with_what_to_do(
    project: Project,
) -> None:
    del project.environ["UV_OFFLINE"]
    project.environ["UV_HTTP_RETRIES"] = "0"
    with running_file_server() as server:
        links = f"--find-links {server.url('/links/')}"
        (project.root / "requirements.txt").write_text(f"--no-index\n{links}\nalpha\n")
        publish(project, server)
        environment = project.ensure()
        assert version(environment, "alpha") == "2.0"
        remove_environment(project.home, environment.digest)
        (project.wheels / "alpha-2.0-py3-none-any.whl").unlink()
        publish(project, server)
        with pytest.raises(InstallError, match="404") as caught:
            project.ensure()
        assert "KINETIC_REBUILD=1" in (caught.value.hint or "")
        assert caught.value.places == (f"{project.root}/requirements.txt:3",)
        assert version(project.ensure(refresh=True), "alpha") == "1.0"


def publish(project: Project, server: FileServer) -> None:
    """Publish the project's folder of wheels on *server*, and forget downloaded files."""
    files = {path.name: path.read_bytes() for path in project.wheels.iterdir()}
    page = "".join(f"<a href='{name}'>{name}</a>" for name in files)
    server.files.clear()
    server.files |= {f"/links/{name}": data for name, data in files.items()}
    server.add("/links/", f"<html><body>{page}</body></html>".encode())
    project.environ["UV_CACHE_DIR"] = str(project.folder / os.urandom(4).hex())
