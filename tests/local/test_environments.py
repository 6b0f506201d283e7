"""An isolated environment is made once, by whoever comes first, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from file_server import FileServer, running_file_server

from kinetic.backends.local.environments import (
    COMPLETE,
    LAST_USED,
    VirtualEnvironment,
    ensure_environment,
    remove_environment,
)
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.uv import find_uv

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
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", f"version = {version!r}\n")
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(f"{info}/WHEEL", tags)
            wheel.writestr(f"{info}/RECORD", "")

    def require(self, *lines: str) -> None:
        text = "\n".join(("--no-index", "--find-links wheels", *lines))
        (self.root / "requirements.txt").write_text(text)

    def ensure(self, *, bucket: bool = False, refresh: bool = False) -> VirtualEnvironment:
        return ensure_environment(
            self.root,
            home=self.home,
            environ=self.environ,
            bucket=bucket,
            refresh=refresh,
        )

    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def kept(self) -> list[str]:
        return [path.name for path in (self.home / "environments").glob("*/")]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.wheel("alpha", version="1.0")
    made.wheel("alpha", version="2.0")
    return made


def run(environment: VirtualEnvironment, code: str) -> str:
    command = [str(environment.python), "-I", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_it_holds_what_the_project_asks_for_the_clients_cloudpickle_and_no_more(
    project: Project,
) -> None:
    project.require("alpha<2")
    environment = project.ensure()
    code = (
        "import alpha, cloudpickle, sys; print(alpha.version, cloudpickle.__version__, sys.prefix)"
    )
    prefix = environment.python.parents[1]
    assert prefix.parent == project.home / "environments" / environment.digest
    assert run(environment, code) == f"1.0 {cloudpickle.__version__} {prefix}"
    code = "import importlib.util as u; print(u.find_spec('msgspec'), u.find_spec('kinetic'))"
    assert run(environment, code) == "None None"
    assert list(prefix.rglob("alpha*.pyc"))


def test_it_is_reused_without_running_uv_and_each_use_is_marked(project: Project) -> None:
    project.require("alpha")
    first = project.ensure()
    assert project.runs() == MADE
    mark = project.home / "environments" / first.digest / LAST_USED
    mark.unlink()
    project.require("# a comment", "", "Alpha")
    assert project.ensure() == first
    assert project.runs() == MADE
    assert mark.exists()


@pytest.mark.parametrize("opened", ["", COMPLETE])
def test_one_that_others_may_write_to_is_made_again(project: Project, opened: str) -> None:
    project.require("alpha")
    first = project.ensure()
    (first.python.parents[2] / opened).chmod(0o777)
    assert project.ensure().python != first.python
    assert not first.python.exists()


def test_another_requirement_is_another_environment(project: Project) -> None:
    project.require("alpha<2")
    first = project.ensure()
    project.require("alpha>=2")
    assert project.ensure().digest != first.digest
    assert len(project.kept()) == 2


def test_for_a_bucket_it_holds_a_client_too_and_is_another_environment(project: Project) -> None:
    project.wheel("google_cloud_storage", version="2.9")
    project.wheel("google_cloud_storage", version="3.4")
    project.require("alpha")
    plain, other = project.ensure(), project.ensure(bucket=True)
    assert plain.digest != other.digest
    assert run(other, "import google_cloud_storage as g; print(g.version)") == "3.4"
    assert project.ensure() == plain


def test_a_client_of_buckets_that_the_project_asks_for_is_its_own(project: Project) -> None:
    project.wheel("google_cloud_storage", version="2.9")
    project.require("alpha", "Google-Cloud_Storage<3")
    environment = project.ensure(bucket=True)
    assert environment == project.ensure()
    assert run(environment, "import google_cloud_storage as g; print(g.version)") == "2.9"


def test_settings_of_uv_are_obeyed_and_are_part_of_what_is_asked_for(project: Project) -> None:
    project.require("alpha")
    before = project.ensure()
    (project.root / "pyproject.toml").write_text(
        "[tool.uv]\nconstraint-dependencies = ['alpha<2']\n"
    )
    made = project.ensure()
    assert made.digest != before.digest
    assert run(made, "import alpha; print(alpha.version)") == "1.0"


def test_a_setting_of_uv_that_is_not_supported_is_refused_before_uv_runs(project: Project) -> None:
    project.require("alpha")
    (project.root / "uv.toml").write_text("[pip]\nno-deps = true\n")
    with pytest.raises(DependencyError, match=r"uv\.toml:2: .*no-deps"):
        project.ensure()
    assert project.runs() == []


def hashed(project: Project, name: str, version: str) -> str:
    path = project.wheels / f"{name}-{version}-py3-none-any.whl"
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_with_hashes_what_kinetic_adds_comes_from_where_the_project_says(project: Project) -> None:
    project.wheel("google_cloud_storage", version="3.4")
    project.require("--require-hashes", hashed(project, "alpha", "1.0"))
    made = project.ensure(bucket=True)
    assert run(made, "import google_cloud_storage as g; print(g.version)") == "3.4"


def test_with_hashes_constraints_hold(project: Project) -> None:
    (project.root / "limits.txt").write_text("alpha<2\n")
    project.require("--require-hashes", "-c limits.txt", hashed(project, "alpha", "2.0"))
    with pytest.raises(InstallError):
        project.ensure()


def test_ten_processes_at_once_make_it_once(project: Project) -> None:
    project.require("alpha")
    code = textwrap.dedent(
        """
        import json, sys
        from pathlib import Path
        from kinetic.backends.local.environments import ensure_environment
        root, home, environ = sys.argv[1:]
        print("ready", flush=True)
        sys.stdin.readline()
        made = ensure_environment(
            Path(root), home=Path(home), environ=json.loads(environ)
        )
        print(made.python)
        """
    )
    arguments = [str(project.root), str(project.home), json.dumps(project.environ)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    printed = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 10
    assert len(printed) == 1
    assert project.runs() == MADE


def test_threads_of_one_process_make_it_once(project: Project) -> None:
    from concurrent.futures import ThreadPoolExecutor

    project.require("alpha")
    with ThreadPoolExecutor(5) as pool:
        made = set(pool.map(lambda _: project.ensure(), range(5)))
    assert len(made) == 1
    assert project.runs() == MADE


def test_a_failure_says_uvs_words_and_the_line_and_leaves_nothing(project: Project) -> None:
    project.require("alpha>=99")
    with pytest.raises(InstallError) as caught:
        project.ensure()
    line = f"{project.root}/requirements.txt:3"
    assert "you require alpha>=99" in caught.value.message
    assert f"\n  {line}: alpha>=99" in caught.value.message
    assert caught.value.places == (line,)
    assert project.kept() == []


def test_a_failure_of_a_dependency_leads_to_the_line_that_wants_it(project: Project) -> None:
    project.wheel("gamma", "delta>=3")
    project.require("alpha", "gamma")
    with pytest.raises(InstallError) as caught:
        project.ensure()
    assert caught.value.places == (f"{project.root}/requirements.txt:4",)


def test_who_waits_for_an_attempt_that_fails_shares_its_failure_and_who_comes_later_tries_again(
    project: Project,
) -> None:
    project.require("alpha>=99")
    started, released = project.folder / "started", project.folder / "released"
    os.mkfifo(started)
    os.mkfifo(released)
    slow = project.folder / "slow" / "uv"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\n[ "$2" = pip ] && {{ echo > {started}; read x < {released} ; }}\n'
        f'exec {project.folder}/bin/uv "$@"\n'
    )
    slow.chmod(0o755)
    script = Path(__file__).parent / "projects" / "ensure.py"

    def start(root: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(root), str(project.home), str(slow.parent)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def lines(process: subprocess.Popen[str], count: int) -> list[str]:
        assert process.stdout is not None
        return sorted(process.stdout.readline().partition(" ")[0] for _ in range(count))

    copy = project.folder / "copy"
    shutil.copytree(project.root, copy)
    first = start(project.root)
    assert started.read_text() == "\n"
    assert lines(first, 2) == ["Resolving", "The"]
    others = [start(project.root), start(copy)]
    assert [lines(other, 2) for other in others] == [["The", "The"]] * 2
    released.write_text("\n")

    for process, root in ((first, project.root), *zip(others, (project.root, copy), strict=True)):
        line = f"places {root}/requirements.txt:3 True\n"
        assert process.communicate()[0] == 2 * line
    assert project.runs() == ["pip compile"]

    with pytest.raises(InstallError):
        project.ensure()
    assert project.runs() == ["pip compile"] * 2
    project.wheel("alpha", version="99")
    project.ensure()
    assert not [path for path in (project.home / "environments").iterdir() if ".f" in path.name]


def test_who_waits_for_an_attempt_that_somebody_stopped_makes_it(project: Project) -> None:
    from concurrent.futures import ThreadPoolExecutor

    project.require("alpha")
    waiting = project.folder / "waiting"
    os.mkfifo(waiting)
    stopped = project.folder / "stopped" / "uv"
    stopped.parent.mkdir()
    stopped.write_text(
        f'#!/bin/sh\nif [ "$2" = pip ] && rm {waiting}.not-yet ; then\n'
        f"read x < {waiting} ; kill -TERM $$ ; fi\n"
        f'exec {project.folder}/bin/uv "$@"\n'
    )
    stopped.chmod(0o755)
    waiting.with_suffix(".not-yet").touch()
    project.environ["PATH"] = f"{stopped.parent}:{os.defpath}"

    def say(text: str) -> None:
        if "waiting" in text:
            waiting.write_text("\n")

    def ensure(_: int) -> VirtualEnvironment | InstallError:
        try:
            return ensure_environment(
                project.root,
                home=project.home,
                environ=project.environ,
                report=say,
            )
        except InstallError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(ensure, range(2))]

    assert [type(end) for end in ends if isinstance(end, InstallError) and end.killed] == [
        InstallError
    ]
    assert [run(end, "import alpha") for end in ends if isinstance(end, VirtualEnvironment)] == [""]


def test_a_ruin_is_cleared_away(project: Project) -> None:
    project.require("alpha")
    ruin = project.ensure()
    (project.home / "environments" / ruin.digest / COMPLETE).unlink()
    made = project.ensure()
    assert run(made, "import alpha; print(alpha.version)") == "2.0"
    assert not ruin.python.exists()


def test_a_killed_maker_blocks_nobody_and_its_uv_spoils_nothing(project: Project) -> None:
    project.require("alpha")
    started, released = project.folder / "started", project.folder / "released"
    os.mkfifo(started)
    os.mkfifo(released)
    slow = project.folder / "slow" / "uv"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\n[ "$2" = pip ] && {{ exec 9> {started}; echo >&9; read x < {released} ; }}\n'
        f'exec {find_uv().program} "$@"\n'
    )
    slow.chmod(0o755)
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from kinetic.backends.local.environments import ensure_environment
        root, home, path = sys.argv[1:]
        environ = {"PATH": path, "HOME": home, "UV_OFFLINE": "1"}
        ensure_environment(
            Path(root), home=Path(home), environ=environ
        )
        """
    )
    temporary = project.folder / "tmp"
    temporary.mkdir()
    maker = subprocess.Popen(
        [sys.executable, "-c", code, str(project.root), str(project.home), str(slow.parent)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},  # noqa: TID251 - a child's begins with ours
    )
    with started.open() as orphaned:
        assert orphaned.readline() == "\n"
        maker.kill()
        maker.wait()
        made = project.ensure()
        released.write_text("\n")  # The orphaned uv goes on,
        assert orphaned.read() == ""  # and ends.
    assert run(made, "import alpha; print(alpha.version)") == "2.0"
    assert project.ensure() == made
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"venv": 5}', '{"venv": "'])
def test_an_environment_with_a_damaged_record_is_made_again(project: Project, text: str) -> None:
    project.require()
    first = project.ensure()
    (project.home / "environments" / first.digest / COMPLETE).write_text(text)
    second = project.ensure()
    assert (second.digest, second.python.exists()) == (first.digest, True)
    assert second.python != first.python


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


def test_an_environment_whose_interpreter_was_removed_is_made_again(project: Project) -> None:
    project.require("alpha")
    stale = project.ensure()
    stale.python.unlink()
    stale.python.symlink_to(project.folder / "gone")
    made = project.ensure()
    assert made.digest == stale.digest
    assert run(made, "print(1)") == "1"


def test_our_own_names_bring_the_clients_copy_and_never_an_index(project: Project) -> None:
    # A stranger's package of that name, which an index could serve.
    project.wheel("kinetic_payload", version="99")
    for name in ("isal", "msgspec", "cloudpickle"):
        project.wheel(name, version="99")
    project.require("Kinetic_Payload==99")
    environment = project.ensure()
    code = "import kinetic_payload.layout as l; print(l.WIRE_VERSION)"
    assert run(environment, code) == "1"
    assert "kinetic-payload==99 is not taken from an index" in environment.notes[0]


def test_a_package_that_needs_ours_gets_the_copy(project: Project) -> None:
    project.wheel("kinetic_payload", version="99")
    for name in ("isal", "msgspec"):
        project.wheel(name, version="99")
    project.wheel("plugin", "kinetic-payload")
    project.require("plugin")
    assert run(project.ensure(), "import kinetic_payload.layout as l; print(l.WIRE_VERSION)") == "1"


def test_a_cloudpickle_that_the_project_asks_for_is_its_own(project: Project) -> None:
    project.wheel("cloudpickle", version="2.0")
    project.require("cloudpickle==2.0")
    assert run(project.ensure(), "import cloudpickle; print(cloudpickle.version)") == "2.0"


def test_a_dependency_may_insist_on_another_cloudpickle_and_that_is_said(project: Project) -> None:
    project.wheel("cloudpickle", version="2.0")
    project.wheel("old", "cloudpickle<3")
    project.require("old")
    environment = project.ensure()
    assert run(environment, "import cloudpickle; print(cloudpickle.version)") == "2.0"
    assert "cloudpickle" in environment.notes[-1]
    assert project.ensure() == environment


def test_hashes_are_required_of_the_users_lines_only(project: Project) -> None:
    import hashlib

    wheel = (project.wheels / "alpha-1.0-py3-none-any.whl").read_bytes()
    project.require(
        "--require-hashes", f"alpha==1.0 --hash=sha256:{hashlib.sha256(wheel).hexdigest()}"
    )
    assert run(project.ensure(), "import alpha, cloudpickle; print(alpha.version)") == "1.0"
    project.require("--require-hashes", f"alpha==1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(DependencyError, match=r"requirements\.txt:4: the SHA-256 of alpha-1.0"):
        project.ensure()


def test_a_path_of_this_machine_is_refused_before_uv_runs(project: Project) -> None:
    project.require("-e ../library")
    with pytest.raises(DependencyError, match=r"requirements\.txt:3: '-e \.\./library'"):
        project.ensure()
    assert project.runs() == []


def test_a_project_that_declares_nothing_gets_an_environment_and_is_told(project: Project) -> None:
    environment = project.ensure()
    assert run(environment, "import cloudpickle; print(1)") == "1"
    assert "declares dependencies" in environment.notes[0]


def test_a_pyproject_that_asks_for_another_python_is_told(project: Project) -> None:
    text = '[project]\nname = "p"\nversion = "1"\nrequires-python = "<3"\n'
    (project.root / "pyproject.toml").write_text(text)
    assert "requires Python <3" in project.ensure().notes[0]


def test_a_removed_environment_is_made_again(project: Project) -> None:
    project.require("alpha")
    environment = project.ensure()
    assert remove_environment(project.home, environment.digest)
    assert not remove_environment(project.home, environment.digest)
    assert not environment.python.exists()
    assert run(project.ensure(), "import alpha; print(alpha.version)") == "2.0"


def test_an_environment_in_use_is_not_removed_as_unused(project: Project) -> None:
    project.require("alpha")
    environment = project.ensure()
    mark = project.home / "environments" / environment.digest / LAST_USED
    used = mark.stat().st_mtime
    assert not remove_environment(project.home, environment.digest, unused_since=used)
    assert project.ensure() == environment
    os.utime(mark, (used - 100, used - 100))
    assert remove_environment(project.home, environment.digest, unused_since=used - 50)
    assert project.kept() == []


def test_what_happens_is_said_and_a_note_once_a_process(project: Project) -> None:
    project.require("alpha", "--prefer-binary")
    said: list[str] = []
    for _ in range(2):
        ensure_environment(
            project.root,
            home=project.home,
            environ=project.environ,
            report=said.append,
        )
    assert said[:2] == [
        f"Resolving the dependencies in {project.root}/requirements.txt with uv.",
        "Making an isolated environment with 2 packages.",
    ]
    assert [one for one in said if "--prefer-binary" in one] == said[3:]


def test_a_package_that_does_not_build_shows_the_words_of_its_build(project: Project) -> None:
    import tarfile

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


class Published:
    """The wheels of a project on a web server, from where they can vanish."""

    def __init__(self, project: Project, server: FileServer) -> None:
        self.project = project
        self.server = server
        del project.environ["UV_OFFLINE"]
        project.environ["UV_HTTP_RETRIES"] = "0"
        self.publish()

    def publish(self) -> None:
        """Publish what is in the project's folder of wheels, and forget what was downloaded."""
        files = {path.name: path.read_bytes() for path in self.project.wheels.iterdir()}
        page = "".join(f"<a href='{name}'>{name}</a>" for name in files)
        self.server.files.clear()
        self.server.files |= {f"/links/{name}": data for name, data in files.items()}
        self.server.add("/links/", f"<html><body>{page}</body></html>".encode())
        self.project.environ["UV_CACHE_DIR"] = str(self.project.folder / os.urandom(4).hex())

    def require(self, *lines: str) -> None:
        text = "\n".join(("--no-index", f"--find-links {self.server.url('/links/')}", *lines))
        (self.project.root / "requirements.txt").write_text(text)


@pytest.fixture
def published(project: Project) -> Iterator[Published]:
    with running_file_server() as server:
        yield Published(project, server)


def test_if_nothing_fits_any_more_uvs_words_are_printed_once(
    project: Project, published: Published
) -> None:
    published.require("alpha==2.0")
    remove_environment(project.home, project.ensure().digest)
    (project.wheels / "alpha-2.0-py3-none-any.whl").unlink()
    published.publish()

    with pytest.raises(InstallError) as caught:
        project.ensure()

    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("error: ") == 1
    assert caught.value.places == (f"{project.root}/requirements.txt:3",)


def test_if_a_file_of_the_kept_lock_has_vanished_another_one_is_installed(
    project: Project, published: Published
) -> None:
    published.require("alpha")
    before = project.ensure()
    remove_environment(project.home, before.digest)
    (project.wheels / "alpha-2.0-py3-none-any.whl").unlink()
    published.publish()
    reports: list[str] = []

    environment = ensure_environment(
        project.root, home=project.home, environ=project.environ, report=reports.append
    )

    assert run(environment, "import alpha; print(alpha.version)") == "1.0"
    (line,) = [line for line in reports if "vanished" in line]
    assert "alpha 2.0 (not on 127.0.0.1:" in line
    assert project.ensure().digest == environment.digest


def test_a_file_that_the_project_pins_by_its_hash_is_not_replaced(
    project: Project, published: Published
) -> None:
    wheel = project.wheels / "alpha-2.0-py3-none-any.whl"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    published.require(f"alpha==2.0 --hash=sha256:{digest}")
    remove_environment(project.home, project.ensure().digest)
    wheel.unlink()
    published.publish()

    with pytest.raises(DependencyError, match=r"requirements\.txt:3: .* is pinned there"):
        project.ensure()
