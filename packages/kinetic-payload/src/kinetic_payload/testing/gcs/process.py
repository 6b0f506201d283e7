"""`GcsProcess`: the server as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

from kinetic_payload.testing.gcs.requests import Logged


class GcsProcess:
    """A server in a child process, for benchmarks; *arguments* are those of its command line."""

    def __init__(self, *buckets: str, arguments: Sequence[str] = ()) -> None:
        named = [part for bucket in buckets for part in ("--bucket", bucket)]
        self._command = [sys.executable, "-m", "kinetic_payload.testing.gcs", *named, *arguments]
        # This process may be killed before it can stop the server.
        self._command.append("--until-stdin-ends")
        self.endpoint = ""

    def __enter__(self) -> GcsProcess:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint, "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make clients use this server."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def requests(self) -> list[Logged]:
        """Return the server's request log."""
        return [Logged(**item) for item in self._request("GET", "requests")]

    def clear_requests(self) -> None:
        """Clear the request log."""
        self._request("DELETE", "requests")

    def add_fault(self, **what: Any) -> None:
        """Add a fault with the arguments of `Fault`."""
        self._request("POST", "faults", what)

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._request("DELETE", "faults")

    def _request(self, method: str, what: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        address = f"{self.endpoint}/_kinetic/{what}"
        request = Request(address, data=body, method=method)  # noqa: S310 - of this machine
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None
