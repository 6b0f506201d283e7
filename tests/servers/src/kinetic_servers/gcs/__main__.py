"""`python -m kinetic_servers.gcs`: the server as a process."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from kinetic_servers.gcs.server import GcsServer


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal arrives. The first line on stdout is the endpoint."""
    parser = argparse.ArgumentParser(prog="python -m kinetic_servers.gcs")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--folder", type=Path, help="the folder of objects while it runs")
    parser.add_argument("--bucket", action="append", default=[], help="create this bucket")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each response")
    parser.add_argument("--no-md5", action="store_true", help="compute no MD5, for faster uploads")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="end with the process that started it"
    )
    given = parser.parse_args(arguments)
    stopping = {signal.SIGINT, signal.SIGTERM}
    # Threads inherit the mask, so that only `sigwait` receives these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    server = GcsServer(
        folder=given.folder,
        host=given.host,
        port=given.port,
        md5=not given.no_md5,
    )
    with server:
        for name in given.bucket:
            server.create_bucket(name)
        if given.delay:
            server.faults.add(delay=given.delay)
        sys.stdout.write(f"{server.endpoint}\n")
        sys.stdout.flush()
        if given.until_stdin_ends:
            threading.Thread(target=_end_with_stdin, daemon=True).start()
        signal.sigwait(stopping)
    return 0


def _end_with_stdin() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
