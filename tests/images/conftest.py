"""Programs that these tests need: Debian's registry and docker, each started by the tests themselves."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

REQUIRED = "KINETIC_TEST_IMAGES"
HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of runs that do not name them: they start a container engine."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def need() -> Callable[[str, str], str]:
    """Return what returns the path of a program, or skips the test that needs it."""

    def path_of(program: str, package: str) -> str:
        found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")  # noqa: TID251
        if found is None:
            reason = f"{program} is missing (Debian's package {package})"
            if os.environ.get(REQUIRED) == "required":  # noqa: TID251
                pytest.fail(f"{reason}, and {REQUIRED}=required")
            pytest.skip(reason)
        return found

    return path_of


@pytest.fixture(scope="session")
def docker_registry(
    need: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of Debian's registry, which everybody may write to."""
    folder = tmp_path_factory.mktemp("docker-registry")
    with running_registry(need("docker-registry", "docker-registry"), folder) as host:
        yield host


@contextmanager
def running_registry(program: str, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\n"
        "log: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '{host}'}}\n"
    )
    log = (folder / "log").open("wb")
    with log, subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log) as process:
        try:
            until = time.monotonic() + 20
            while process.poll() is None and time.monotonic() < until:
                try:
                    urllib3.request("GET", f"http://{host}/v2/", retries=False, timeout=2)
                    break
                except urllib3.exceptions.HTTPError:
                    time.sleep(0.02)  # noqa: TID251
            yield host
        finally:
            process.kill()


class Engine:
    """A docker engine of these tests only."""

    def __init__(self, host: str, folder: Path) -> None:
        inherited = os.environ.items()  # noqa: TID251 - docker begins with ours
        kept = {k: v for k, v in inherited if not k.startswith("DOCKER_")}
        self.environ = {**kept, "DOCKER_HOST": host, "DOCKER_CONFIG": str(folder / "config")}

    def run(
        self, *arguments: str, check: bool = True, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run Debian's docker with *arguments*."""
        return subprocess.run(
            ["/usr/bin/docker", *arguments],
            env=self.environ,
            input=given,
            capture_output=True,
            check=check,
        )


@pytest.fixture(scope="session")
def engine(need: Callable[[str, str], str]) -> Iterator[Engine]:
    """Start dockerd with data of its own; only one runs on a machine at a time."""
    program = need("dockerd", "docker.io")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    lock = os.environ.get("KINETIC_TEST_DOCKERD_LOCK", "/tmp/kinetic-dockerd.lock")  # noqa: TID251
    with (
        Path(lock).open("w") as held,
        # Not below pytest's folder, whose path is too long for a socket.
        tempfile.TemporaryDirectory(prefix="kinetic-docker-", dir="/var/tmp") as made,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        folder = Path(made)
        found = Engine(f"unix://{folder}/socket", folder)
        command = [program, "--data-root", folder / "data", "--exec-root", folder / "run"]
        command += ["-H", found.environ["DOCKER_HOST"], "--pidfile", folder / "pid"]
        log = (folder / "log").open("wb")
        with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                until = time.monotonic() + 60
                while found.run("version", check=False).returncode:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < until, "dockerd is not ready"
                    time.sleep(0.1)  # noqa: TID251
                yield found
            finally:
                process.terminate()
                process.wait()
