"""HTTP of a registry for tests: connections, authentication, injected faults."""

from __future__ import annotations

import io
import socket
import ssl
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, Final, cast
from urllib.parse import parse_qs, urlsplit

from kinetic_images.testing.registry.access import Access
from kinetic_images.testing.registry.answers import Answer, Asked, json_answer, refusal
from kinetic_images.testing.registry.api import Api
from kinetic_images.testing.registry.faults import Fault, Faults
from kinetic_images.testing.registry.requests import Logged, Requests
from kinetic_images.testing.registry.storage import StorageError

_PIECE: Final = 1 << 16


class Web(ThreadingHTTPServer):
    """The server. With *tls*, it speaks HTTPS."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        *,
        api: Api,
        access: Access | None,
        faults: Faults,
        requests: Requests,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(address, _Handler)
        self.api = api
        self.access = access
        self.faults = faults
        self.requests = requests
        self.tls = tls
        self._sockets: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        accepted, address = super().get_request()
        if self.tls is not None:
            # The handshake happens in the connection's own thread.
            accepted = self.tls.wrap_socket(
                accepted, server_side=True, do_handshake_on_connect=False
            )
        self._sockets.add(accepted)
        return accepted, address

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._sockets.discard(request)
        super().shutdown_request(request)

    def close_all(self) -> None:
        """Break all connections."""
        for each in list(self._sockets):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, which tests cause on purpose."""


class _BreakError(Exception):
    """The connection is to be broken."""


class _Body(io.RawIOBase):
    """The body of a request, of a known length or in chunks, with the faults that hit it."""

    def __init__(self, source: BinaryIO, headers: Mapping[str, str], fault: Fault) -> None:
        self._source = source
        self._fault = fault
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._left = int(headers.get("content-length") or 0)
        self.ended = not self._chunked and self._left == 0
        self.count = 0

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE) or b"", b""))

    def readinto(self, buffer: Any) -> int:
        data = self._read(min(len(buffer), _PIECE))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        if self.ended:
            return b""
        if self._chunked and self._left == 0:
            self._left = int(self._source.readline().split(b";")[0] or b"0", 16)
            if self._left == 0:
                self._source.readline()
                self.ended = True
                return b""
        for limit in (self._fault.drop_request_after, self._fault.stall_request_after):
            if limit is not None:
                size = min(size, max(limit - self.count, 0))
        if size == 0:
            if self._fault.stall_request_after is not None:
                self._fault.released.wait()
            raise _BreakError
        data = self._source.read(min(size, self._left))
        if not data:
            raise _BreakError
        self._left -= len(data)
        self.count += len(data)
        if self._left == 0:
            if self._chunked:
                self._source.readline()
            else:
                self.ended = True
        return data


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "kinetic-registry"
    server: Web

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: tuple(found) for key, found in parse_qs(parts.query).items()}
        headers: dict[str, str] = {}
        for (
            key,
            value,
        ) in self.headers.items():  # docker sends a header for each type that it accepts.
            before = headers.get(key.lower())
            headers[key.lower()] = value if before is None else f"{before}, {value}"
        shown = {**headers, "authorization": headers.get("authorization", "").partition(" ")[0]}
        logged = Logged(self.command, parts.path, query, shown)
        self.server.requests.add(logged)
        fault = self.server.faults.strike(self.command, parts.path)
        body = _Body(cast("BinaryIO", self.rfile), headers, fault)
        asked = Asked(
            self.command, parts.path, query, headers, cast("BinaryIO", body), self._base()
        )
        try:
            if fault.stall:
                fault.released.wait(fault.stall)
            answer = self._answer(asked, fault, logged)
            logged.bytes_in = body.count
            if fault.lose_response:
                raise _BreakError
            self._send(answer, fault, logged, body)
        except (_BreakError, ConnectionError, TimeoutError):
            logged.bytes_in = body.count
            self._break()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - http.server's names

    def _answer(self, asked: Asked, fault: Fault, logged: Logged) -> Answer:
        if fault.status is not None:
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            answer = refusal(
                StorageError(fault.status, fault.code or "UNKNOWN", fault.message), headers
            )
        else:
            answer = self._performed(asked, logged)
        answer.headers.setdefault("Docker-Distribution-Api-Version", "registry/2.0")
        if fault.page is not None:
            answer = Answer(
                answer.status, {**answer.headers, "Content-Type": "text/html"}, fault.page
            )
        for name, value in fault.headers.items():
            answer.headers.pop(name, None)
            if value is not None:
                answer.headers[name] = value
        return answer

    def _performed(self, asked: Asked, logged: Logged) -> Answer:
        api, access = self.server.api, self.server.access
        try:
            if access is not None:
                if asked.path == "/token":
                    return self._token(asked, access)
                needed = api.needs(asked)
                if not asked.path.startswith("/_blobs/"):
                    header = asked.headers.get("authorization", "")
                    logged.user, wrong = access.check(header, needed)
                    if wrong:
                        return self._challenge(access, needed, wrong)
            return api.answer(asked)
        except StorageError as error:
            return refusal(error)

    def _challenge(self, access: Access, needed: Mapping[str, str], wrong: str) -> Answer:
        if access.basic and wrong == "insufficient":
            return refusal(
                StorageError(403, "DENIED", "requested access to the resource is denied")
            )
        value = 'Basic realm="registry"'
        if not access.basic:
            realm = access.realm or f"{self._base()}/token"
            value = f'Bearer realm="{realm}",service="{access.service}"'
            if needed:
                rights = {"pull": "pull", "push": "pull,push"}
                scopes = (f"repository:{name}:{rights[what]}" for name, what in needed.items())
                value += f',scope="{" ".join(scopes)}"'
            if wrong != "missing":
                value += f',error="{wrong}_{"scope" if wrong == "insufficient" else "token"}"'
        error = StorageError(401, "UNAUTHORIZED", "authentication required")
        return refusal(error, {"WWW-Authenticate": value})

    def _token(self, asked: Asked, access: Access) -> Answer:
        user: str | None
        if asked.method == "POST":
            form = parse_qs(asked.body.read().decode())
            user = access.refresh.get(form.get("refresh_token", [""])[0])
            scopes = form.get("scope", [])
        else:
            user = access.log_in(asked.headers.get("authorization", ""))
            scopes = list(asked.query.get("scope", ()))
        if user is None:
            raise StorageError(401, "UNAUTHORIZED", "incorrect username or password")
        token = access.issue(user, scopes)
        issued = datetime.now(UTC).isoformat()
        name = "access_token" if asked.method == "POST" else "token"
        return json_answer({name: token, "expires_in": access.seconds, "issued_at": issued})

    def _base(self) -> str:
        scheme = "http" if self.server.tls is None else "https"
        return f"{scheme}://{self.headers.get('Host', '')}"

    def _send(self, answer: Answer, fault: Fault, logged: Logged, body: _Body) -> None:
        head = self.command == "HEAD"
        if not body.ended:
            # What is left of the body would be taken for the next request.
            self.close_connection = True
        if self.close_connection:
            answer.headers["Connection"] = "close"
        self.send_response(answer.status)
        if not fault.endless and answer.status != 204 and "Content-Length" not in answer.headers:
            answer.headers["Content-Length"] = str(answer.size)
        if fault.endless:
            answer.headers["Transfer-Encoding"] = "chunked"
        for name, value in answer.headers.items():
            self.send_header(name, value)
        logged.status = answer.status
        self.end_headers()
        if fault.endless:
            while True:
                self.wfile.write(b"400\r\n" + b" " * 1024 + b"\r\n")
        if not head:
            self._send_body(answer, fault, logged)

    def _send_body(self, answer: Answer, fault: Fault, logged: Logged) -> None:
        stream = (
            io.BytesIO(answer.body) if isinstance(answer.body, bytes) else answer.body.open("rb")
        )
        with stream:
            stream.seek(answer.start)
            left = answer.size
            if fault.drop_response_after is not None:
                left = min(left, fault.drop_response_after)
            while left > 0 and (piece := stream.read(min(left, _PIECE))):
                self.wfile.write(piece)
                logged.bytes_out += len(piece)
                left -= len(piece)
        if fault.drop_response_after is not None:
            self.wfile.flush()
            raise _BreakError

    def _break(self) -> None:
        self.close_connection = True
        # With a linger time of 0, the connection is reset instead of closed.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
