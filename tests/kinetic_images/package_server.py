"""A web server for a folder of packages, which each test chooses."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class PackageServer:
    """The attributes can be changed while it runs."""

    folder: Path
    host: str = ""
    """`HOST:PORT`"""
    login: str | None = None
    """The `USER:PASSWORD` that all requests need."""
    is_down: bool = False

    @property
    def url(self) -> str:
        return f"http://{self.host}/"


@contextmanager
def running_package_server(folder: Path) -> Iterator[PackageServer]:
    served = PackageServer(folder)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(served.folder))

        def send_head(self) -> Any:
            login = base64.b64encode((served.login or "").encode()).decode()
            if served.is_down:
                self.send_error(500)
            elif served.login and self.headers.get("Authorization") != f"Basic {login}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="packages"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                return super().send_head()
            return None

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.host = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
