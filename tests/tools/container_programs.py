"""Debian's registry and docker, each started apart from those of the machine, and a base image for them.

Benchmarks use them as well; they import this file by its path.
"""

from __future__ import annotations

import fcntl
import io
import ipaddress
import json
import lzma
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import urllib3

from kinetic_images.registry.registry import Registry

DOCKER = "/usr/bin/docker"
"""Debian's: a newer one on PATH may be without BuildKit."""


def find_program(name: str) -> str | None:
    """Return the path of a program, which may be one for administrators; None if it is missing."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")  # noqa: TID251


def base_archive() -> Path | None:
    """Return the archive of the test cloud's base image, Debian's Python 3.11; None without the test cloud."""
    folder = os.environ.get("KINETIC_TESTCLOUD", "")  # noqa: TID251
    archive = Path(folder, "kube/images/python.tar.xz")
    return archive if folder and archive.is_file() else None


@contextmanager
def running_registry(program: str, folder: Path) -> Iterator[str]:
    """Run Debian's registry with its data in *folder*; provide its address. Everybody may write to it."""
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
    """A docker engine of its own."""

    def __init__(self, host: str, folder: Path) -> None:
        inherited = os.environ.items()  # noqa: TID251 - docker begins with ours
        kept = {k: v for k, v in inherited if not k.startswith("DOCKER_")}
        self.environ = {**kept, "DOCKER_HOST": host, "DOCKER_CONFIG": str(folder / "config")}

    def run(
        self, *arguments: str, check: bool = True, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run Debian's docker with *arguments*."""
        return subprocess.run(
            [DOCKER, *arguments],
            env=self.environ,
            input=given,
            capture_output=True,
            check=check,
        )

    @property
    def address_of_host(self) -> str:
        """The address at which containers reach servers on this machine."""
        form = "{{(index .IPAM.Config 0).Subnet}}"
        subnet = self.run("network", "inspect", "bridge", "--format", form).stdout.decode().strip()
        # The gateway is named only if the bridge existed before dockerd started.
        return str(next(ipaddress.ip_network(subnet).hosts()))


@contextmanager
def running_engine(program: str, *, where: str = "/var/tmp") -> Iterator[Engine]:
    """Run dockerd with data of its own in *where*; only one runs on a machine at a time."""
    lock = os.environ.get("KINETIC_TEST_DOCKERD_LOCK", "/tmp/kinetic-dockerd.lock")  # noqa: TID251
    with (
        Path(lock).open("w") as held,
        # Not below pytest's folder, whose path is too long for a socket.
        tempfile.TemporaryDirectory(prefix="kinetic-docker-", dir=where) as made,
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


def push_base(archive: Path, host: str) -> str:
    """Push the image in *archive* (xz) to the registry *host*; return its address by digest."""
    with lzma.open(archive) as unpacked, tarfile.open(fileobj=unpacked) as layout:
        files = {member.name: layout.extractfile(member) for member in layout if member.isfile()}
        blobs = {name.rpartition("/")[2]: file.read() for name, file in files.items() if file}
    repository = Registry(environ={}).repository(f"{host}/base/debian")
    (entry,) = json.loads(blobs["index.json"])["manifests"]
    raw = blobs[entry["digest"].removeprefix("sha256:")]
    manifest = json.loads(raw)
    for each in (manifest["config"], *manifest["layers"]):
        data = blobs[each["digest"].removeprefix("sha256:")]
        repository.upload(each["digest"], len(data), partial(io.BytesIO, data), lambda _: None)
    return f"{repository}@{repository.put_manifest('3.11', raw, manifest['mediaType'])}"
