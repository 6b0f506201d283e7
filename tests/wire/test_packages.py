"""Packages that a job brings are installed when it starts, and shadow those of the image."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cloudpickle
import pytest
from file_server import FileServer, running_file_server
from wheel_maker import make_wheel

from kinetic_images.builders.image_layout import SITE, path_files
from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.index_credentials import IndexCredentials
from kinetic_images.uv import find_uv
from kinetic_payload.layout import Env, Flag, JobObjects
from kinetic_payload.project.context import ensure_context
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location

from .conftest import call_header

JOB = "cpu-work-20260101-000000-abcdef0"
PASSWORD = 'pa55 "of" \\mine #1'
LOGIN = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()


class Pod:
    """A python3 with cloudpickle that runs runners."""

    def __init__(
        self, variables: dict[str, str], bundle: Path, folder: Path, index: FileServer
    ) -> None:
        self.bundle, self.folder, self.index = bundle, folder, index
        self.store = open_store(parse_location(str(folder / "store")))
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        self.lock = ['lock-version = "1.0"\ncreated-by = "kinetic"\n']
        self.variables = {**variables, "PATH": f"{Path(find_uv().program).parent}:{os.defpath}"}

    def offer(
        self, name: str, version: str, files: dict[str, str], *, digest: str | None = None
    ) -> None:
        """Put a wheel on the server and into the lock."""
        path = make_wheel(self.folder, files, name=name, version=version)
        url = self.index.add(f"/{path.name}", path.read_bytes())
        self._lock(name, version, path, f'url = "{url}"', digest)

    def bring(self, name: str, version: str, files: dict[str, str]) -> None:
        """Put a wheel beside the lock."""
        folder = self.inputs / "packages"
        folder.mkdir(exist_ok=True)
        path = make_wheel(folder, files, name=name, version=version)
        self._lock(name, version, path, f'path = "packages/{path.name}"', None)

    def _lock(self, name: str, version: str, path: Path, place: str, digest: str | None) -> None:
        sha256 = digest or hashlib.sha256(path.read_bytes()).hexdigest()
        self.lock.append(
            f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
            f'wheels = [{{ name = "{path.name}", {place}, hashes = {{ sha256 = "{sha256}" }} }}]\n'
        )

    def start(self, function: Callable[[], object], *flags: str) -> subprocess.Popen[str]:
        (self.inputs / "pylock.toml").write_text("\n".join(self.lock))
        tree = tree_of(self.inputs)
        ensure_context(self.store, tree)
        header = call_header("work", "__main__")
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        try:
            call = cloudpickle.dumps((function, (), {}), protocol=pickle.HIGHEST_PROTOCOL)
        finally:
            cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        payload = header.encode() + b"\n" + call
        self.store.write(JobObjects(JOB).payload, payload)
        digest = hashlib.sha256(payload).hexdigest()
        fields = {"job_id": JOB, "payload_digest": digest, "environment_digest": tree.digest}
        record = json.dumps(fields).encode()
        self.store.write(JobObjects(JOB).handle, record)
        command = [
            self.variables["PYTHON"],
            "-u",
            str(self.bundle),
            Flag.STORE,
            str(self.folder / "store"),
        ]
        command += [Flag.JOB, JOB, Flag.RECORD_DIGEST, hashlib.sha256(record).hexdigest(), *flags]
        command += [Flag.WORKSPACE, str(self.folder / "work")]
        return subprocess.Popen(
            command,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, function: Callable[[], object], *flags: str) -> tuple[int, str]:
        process = self.start(function, *flags)
        output = process.communicate(timeout=120)[0]
        return process.returncode, output

    def outcome(self, attempt: int = 1) -> dict[str, Any]:
        return json.loads(self.store.read(JobObjects(JOB).host_outcome(attempt, 0)))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a virtual environment, whose python3 ignores the user's site-packages."""
    folder = tmp_path_factory.mktemp("venv") / "venv"
    uv = find_uv().program
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    need = f"cloudpickle=={cloudpickle.__version__}"
    found = str(folder / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "--python", found, need], check=True)
    return {"PYTHON": found}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a python3 that finds its packages as in the images that Kinetic builds."""
    folder = tmp_path_factory.mktemp("image")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = folder / "lib" / version
    library.mkdir(parents=True)
    for path in Path(sysconfig.get_path("stdlib")).iterdir():
        if not path.name.endswith("-packages"):
            (library / path.name).symlink_to(path)
    for path, content in path_files(version.removeprefix("python")).items():
        finder = library / Path(path).relative_to(f"/usr/local/lib/{version}")
        finder.parent.mkdir()
        finder.write_bytes(content.replace(SITE.encode(), str(folder / "site").encode()))
    package = Path(cloudpickle.__file__).parent
    shutil.copytree(package, folder / "site" / package.name)
    return {"PYTHON": os.path.realpath(sys.executable), "PYTHONHOME": str(folder)}


@pytest.fixture
def pod(request: pytest.FixtureRequest, bundle: Path, tmp_path: Path) -> Iterator[Pod]:
    with running_file_server() as index:
        variables = request.getfixturevalue(getattr(request, "param", "environment"))
        yield Pod(variables, bundle, tmp_path, index)


in_both = pytest.mark.parametrize("pod", ["environment", "image"], indirect=True)


def show() -> None:
    import alpha

    print("found", alpha.NAME, {**os.environ})  # noqa: TID251


def work() -> None:
    import shutil
    import sys

    import alpha
    import alpha_compiled  # noqa: F401
    import beta
    import cloudpickle

    share = Path(os.environ["PYTHONUSERBASE"], "share/alpha")  # noqa: TID251
    print("data", [path.name for path in share.iterdir()])
    print("found", alpha.NAME, beta.NAME, "by_pth" in sys.modules, shutil.which("alpha-tool"))
    print("shadowed", cloudpickle.__version__)
    again = [sys.executable, "-c", "import cloudpickle as c; print('in a process', c.__version__)"]
    subprocess.run(again, check=True)
    print("kept", [name for name in ("KINETIC_INDEX_NETRC",) if name in os.environ])  # noqa: TID251


@in_both
def test_packages_are_installed_and_take_precedence_over_those_of_the_image(
    pod: Pod,
) -> None:
    script = "#!python\nprint(1)\n"
    pod.offer(
        "alpha",
        "1.0",
        {
            "alpha.py": "NAME = 'one'",
            "alpha.pth": "import by_pth\n",
            "by_pth.py": "",
            "alpha-1.0.data/scripts/alpha-tool": script,
            "alpha-1.0.data/data/share/alpha/template": "",
            "alpha-1.0.data/platlib/alpha_compiled.py": "",
        },
    )
    pod.bring("beta", "2.0", {"beta.py": "NAME = 'two'"})
    real = Path(cloudpickle.__file__).parent
    files = {f"cloudpickle/{path.name}": path.read_text() for path in real.glob("*.py")}
    files["cloudpickle/__init__.py"] += "\n__version__ = '99.0'\n"
    pod.offer("cloudpickle", "99.0", files)

    pod.variables["PYTHONNOUSERSITE"] = "1"

    code, output = pod.run(work)

    assert code == 0, output
    if "PYTHONHOME" in pod.variables:
        assert "in a process 99.0" in output
    else:
        assert "ignores PYTHONUSERBASE" in output
    tool = pod.folder / "work" / "environment" / "bin" / "alpha-tool"
    assert "data ['template']" in output
    assert f"found one two True {tool}" in output
    assert "shadowed 99.0" in output
    assert "[uv] " in output
    found = pod.outcome()
    assert found["phases"]["environment"] > 0
    assert not (pod.folder / "work" / "installing").exists()


@in_both
def test_a_second_attempt_installs_packages_again(pod: Pod) -> None:
    def spoil() -> None:
        from pathlib import Path

        import alpha

        print("found", alpha.NAME)
        Path(alpha.__file__).write_text("NAME = 'spoilt'")
        raise SystemExit(1)

    pod.offer("alpha", "1.0", {"alpha.py": "NAME = 'one'"})
    for attempt in (1, 2):
        code, output = pod.run(spoil, Flag.ATTEMPT, str(attempt))
        assert (code, output.count("found one")) == (1, 1), output


def test_a_file_with_another_digest_is_not_installed(pod: Pod) -> None:
    pod.offer("alpha", "1.0", {"alpha.py": ""}, digest="0" * 64)

    code, output = pod.run(work)

    assert code == 2
    found = pod.outcome()
    assert (found["phase"], found["reason"]) == ("environment", "exception")
    assert "Hash mismatch" in found["message"]
    assert "Kinetic could not prepare the environment" in output


def test_index_credentials_are_used_and_neither_printed_nor_stored(pod: Pod) -> None:
    pod.index.required = LOGIN
    pod.offer("alpha", "1.0", {"alpha.py": "NAME = 'one'"})
    index = f"http://me:{quote(PASSWORD)}@127.0.0.1:{pod.index.port}/"
    (pod.folder / "requirements.txt").write_text(f"--index-url {index}\n")
    declared = read_dependencies(pod.folder / "requirements.txt", environ={})
    pod.variables[Env.INDEX_NETRC] = IndexCredentials(declared, {}).netrc([pod.index.url("/")])

    code, output = pod.run(show)

    assert code == 0, output
    assert "found one" in output
    assert PASSWORD not in output
    left = [path for path in (pod.folder / "work").rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in path.read_bytes() for path in left)


def test_a_wrong_index_password_fails_the_job_and_is_not_printed(pod: Pod) -> None:
    pod.index.required = LOGIN
    pod.offer("alpha", "1.0", {"alpha.py": ""})
    pod.variables[Env.INDEX_NETRC] = "machine 127.0.0.1 login me password wr0ng\n"

    code, output = pod.run(work)

    assert code == 2
    message = pod.outcome()["message"]
    assert "401" in message
    assert "wr0ng" not in output + message


def test_a_stop_during_the_installation_ends_it(pod: Pod) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        go_on.wait(60)

    pod.index.on_request = hang
    pod.offer("alpha", "1.0", {"alpha.py": ""})
    process = pod.start(work)
    assert asked.wait(60)

    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]

    go_on.set()
    assert process.returncode == 143, output
    found = pod.outcome()
    assert (found["phase"], found["reason"]) == ("environment", "terminated")


def test_pods_of_a_node_download_a_package_once(pod: Pod, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    pod.index.lasting = True
    pod.variables[Env.PACKAGE_CACHE] = str(shared)
    pod.offer("alpha", "1.0", {"alpha.py": "NAME = 'one'"})
    for _ in range(2):
        code, output = pod.run(show)
        assert (code, "found one" in output) == (0, True), output
        shutil.rmtree(pod.folder / "store" / JOB)
    assert pod.index.count("/alpha-1.0-py3-none-any.whl") == 1


def test_a_shared_cache_that_cannot_be_written_is_not_used(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file")
    pod.variables[Env.PACKAGE_CACHE] = str(tmp_path / "shared")
    pod.offer("alpha", "1.0", {"alpha.py": "NAME = 'one'"})

    code, output = pod.run(show)

    assert (code, "found one" in output) == (0, True), output
    assert "The shared package cache cannot be used" in output


def test_uv_retries_an_index_ten_times(pod: Pod) -> None:
    pod.offer("alpha", "1.0", {"alpha.py": ""})
    program = pod.folder / "uv"
    program.write_text("#!/bin/sh\necho retries: $UV_HTTP_RETRIES\nexit 2\n")
    program.chmod(0o755)
    pod.variables["PATH"] = f"{pod.folder}:{pod.variables['PATH']}"
    pod.variables["UV_HTTP_RETRIES"] = "0"  # Of the image.

    code, output = pod.run(work)

    assert (code, "[uv] retries: 10\n" in output) == (2, True), output


def test_an_image_without_uv_is_named_as_the_reason(pod: Pod) -> None:
    pod.offer("alpha", "1.0", {"alpha.py": ""})
    pod.variables["PATH"] = str(pod.folder)

    code, output = pod.run(work)

    assert code == 2
    assert "kinetic build-image" in output
    assert pod.outcome()["phase"] == "environment"
