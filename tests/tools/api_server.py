"""A stand-in for the API server of a cluster: it accepts dry runs, has a key that signs jobs, and notes writes."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MISSING = {
    "kind": "Status",
    "code": 404,
    "reason": "NotFound",
    "message": "not found",
    "details": {"name": "it"},
}
KEY = {"data": {"key": b64encode(b"6b" * 32).decode()}}


@dataclass
class StandIn:
    """A running stand-in."""

    port: int
    writes: list[str] = field(default_factory=list)
    """Method and path of each request that would have changed something."""
    forbidden: set[str] = field(default_factory=set)
    """Resources (`secrets`) that the user may not create."""
    objects: dict[str, Any] = field(default_factory=dict)
    """What was created, by path."""

    def created(self, kind: str) -> Any:
        """Return the only object of *kind* that was created."""
        (found,) = (each for each in self.objects.values() if each.get("kind") == kind)
        return found

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig whose only context, `standin`, leads here."""
        path = folder / "kubeconfig"
        cluster = {"name": "standin", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "standin", "context": {"cluster": "standin", "user": "me"}}
        user = {"name": "me", "user": {"token": "token"}}
        path.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [user]}))
        return path


@contextmanager
def running_api_server() -> Iterator[StandIn]:
    """Run a stand-in."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            if name == "kinetic-key":
                self.answer(200, {"kind": "Secret", "metadata": {"name": name}, **KEY})
            elif name == "default":
                self.answer(200, {"kind": "ServiceAccount", "metadata": {"name": name}})
            elif path in found.objects:
                self.answer(200, found.objects[path])
            else:
                self.answer(404, MISSING)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            if self.command == "PATCH":
                found.writes.append(f"{self.command} {path}")
                known = found.objects.get(path)
                self.answer(200 if known else 404, known or MISSING)
                return
            resource = path.rpartition("/")[2]
            if resource in found.forbidden:
                message = f'{resource} is forbidden: User "me" cannot create resource "{resource}" in API group ""'
                self.answer(
                    403, {**MISSING, "code": 403, "reason": "Forbidden", "message": message}
                )
                return
            created = json.loads(body or b"{}")
            metadata = created.setdefault("metadata", {})
            metadata["uid"] = "1"
            if "dryRun=All" not in self.path:
                found.writes.append(f"{self.command} {self.path}")
                if self.command == "POST":
                    found.objects[f"{path}/{metadata['name']}"] = created
            self.answer(201, created)

        do_PATCH = do_PUT = do_DELETE = do_POST

        def answer(self, status: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = StandIn(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
