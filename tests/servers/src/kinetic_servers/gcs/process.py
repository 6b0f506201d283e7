"""`GcsProcess`: the server as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from kinetic_servers.gcs.server import PROJECT
from kinetic_servers.http.requests import Logged


class GcsProcess:
    """A server in a child process; *arguments* are those of its command line. It has no faults but `--delay`."""

    def __init__(self, *buckets: str, arguments: Sequence[str] = ()) -> None:
        named = [part for bucket in buckets for part in ("--bucket", bucket)]
        self._command = [sys.executable, "-m", "kinetic_servers.gcs", *named, *arguments]
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
    def environment(self) -> dict[str, str]:
        """The environment variables that make clients use this server."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def create_bucket(self, name: str, *, location: str = "US") -> None:
        """Create a bucket in a region: a request like others, which is logged, and may have a fault."""
        resource = {"name": name, "location": location}
        self._ask("POST", f"storage/v1/b?project={PROJECT}", resource)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the names of the objects of a bucket, in order; see `create_bucket`."""
        found, query = [], {"prefix": prefix, "fields": "items/name,nextPageToken"}
        while True:
            page = json.loads(self._ask("GET", f"storage/v1/b/{bucket}/o?{urlencode(query)}"))
            found += [item["name"] for item in page.get("items", ())]
            if "nextPageToken" not in page:
                return found
            query["pageToken"] = page["nextPageToken"]

    def read(self, bucket: str, name: str) -> bytes:
        """Return an object's bytes; see `create_bucket`."""
        return self._ask("GET", f"storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")

    def requests(self) -> list[Logged]:
        return [Logged(**item) for item in json.loads(self._ask("GET", "_kinetic/requests"))]

    def clear_requests(self) -> None:
        self._ask("DELETE", "_kinetic/requests")

    def _ask(self, method: str, what: str, data: Any = None) -> bytes:
        body = None if data is None else json.dumps(data).encode()
        request = Request(
            f"{self.endpoint}/{what}",
            data=body,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=30) as answer:
            found: bytes = answer.read()
        return found
