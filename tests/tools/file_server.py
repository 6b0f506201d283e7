"""A web server for files of packages, with failures as tests need them."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class FileServer:
    """Files by path. The attributes can be changed while it runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    folder: Path | None = None
    """A folder whose files are served, too; a page lists those of a folder without `index.html`."""
    is_down: bool = False
    ranges: bool = True
    required: str | None = None
    """The value of `Authorization` that all requests need."""
    cut: list[int] = field(default_factory=list)
    """After how many bytes of the body the next responses break off."""
    answers: list[Answer] = field(default_factory=list)
    """Responses to the next requests, in place of the files."""
    drip: float = 0.0
    """Seconds after each byte of the body."""
    on_request: Callable[[], None] = lambda: None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers (names in lower case) of each request."""
    lasting: bool = False
    """Whether files never change, as those of an index do."""
    scheme: str = "http"
    port: int = 0

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def add(self, path: str, data: bytes) -> str:
        self.files[path] = data
        return self.url(path)

    def count(self, path: str) -> int:
        return sum(asked == path for _, asked, _ in self.requests)

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        if self.answers or self.is_down:
            return self.answers.pop(0) if self.answers else (500, {}, b"down")
        if self.required is not None and headers.get("authorization") != self.required:
            return 401, {"WWW-Authenticate": "Basic"}, b"who?"
        data = self.files.get(path)
        if data is None and self.folder is not None:
            place = self.folder / unquote(urlsplit(path).path).lstrip("/")
            place = place / "index.html" if (place / "index.html").exists() else place
            if place.is_dir():
                names = sorted(each.name for each in place.iterdir())
                data = "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode()
            elif place.exists():
                data = place.read_bytes()
        if data is None:
            return 404, {}, b"missing"
        found = re.fullmatch(r"bytes=(\d+)-", headers.get("range", "")) if self.ranges else None
        if not found:
            more = {"Cache-Control": "max-age=3600, immutable"} if self.lasting else {}
            if path.endswith("/"):  # A page of an index.
                more["Content-Type"] = "text/html"
            return 200, more, data
        start = int(found[1])
        if start >= len(data):
            return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
        return 206, {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}, data[start:]


@contextmanager
def running_file_server(tls: ssl.SSLContext | None = None) -> Iterator[FileServer]:
    served = FileServer(scheme="https" if tls else "http")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            served.requests.append((self.command, self.path, headers))
            served.on_request()
            status, more, data = served.answer(self.path, headers)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            end = served.cut.pop(0) if served.cut and status in (200, 206) else len(data)
            step = 1 if served.drip else max(end, 1)
            for start in range(0, end, step):
                self.wfile.write(data[start : min(start + step, end)])
                time.sleep(served.drip)  # noqa: TID251
            self.close_connection = end < len(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Report nothing: clients may break off."""

    server = Server(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
