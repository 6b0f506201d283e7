"""Websockets of the API server, and connections to a port of a pod."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from urllib3.exceptions import HTTPError

from kinetic_k8s.cluster.connection import Opened
from kinetic_k8s.cluster.translation import Identity, Refusal, Request
from kinetic_k8s.errors import ClusterUnreachableError, PortRefusedError

if TYPE_CHECKING:
    from websocket import WebSocket

PORT_PROTOCOL: Final = "v4.channel.k8s.io"
"""The only one that API servers accept here; they reject `v5.channel.k8s.io` with 403."""
_DATA: Final = 0
_ERROR: Final = 1
_PORT_SIZE: Final = 2
"""Bytes of the port number, which is the first frame of each channel."""
_HANDSHAKE_LIMIT: Final = 30.0
_REFUSED: Final = "connection refused"


def open_websocket(
    opened: Opened, request: Request, where: Identity, *, protocol: str, limit: float
) -> tuple[WebSocket, socket.socket] | Refusal:
    """Connect to what *request* names; return websocket and connection, or the refusal if the server refuses.

    *limit* is the time for the connection to the server, in seconds.

    Raises:
        ClusterUnreachableError: The server does not respond.
    """
    from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

    connection: socket.socket | None = None
    try:
        connection = opened.dial(limit)
        connection.settimeout(_HANDSHAKE_LIMIT)
        stream = WebSocket(enable_multithread=True, skip_utf8_validation=True)
        stream.connect(  # type: ignore[no-untyped-call]
            f"{opened.server}{request.path}".replace("http", "ws", 1),
            socket=connection,
            header=[f"{name}: {value}" for name, value in opened.headers.iteritems()],
            subprotocols=[protocol],
            suppress_origin=True,
            redirect_limit=0,
        )
        connection.settimeout(None)
    except WebSocketBadStatusException as error:
        return Refusal.of(error.status_code, error.resp_body or b"")
    except (WebSocketException, HTTPError, OSError) as error:
        if connection is not None:
            connection.close()
        raise ClusterUnreachableError(
            f"Could not {request} in {where}: {error}.",
            hint="Check the network, a VPN or proxy, and whether the cluster still exists.",
        ) from error
    return stream, connection


class PortStream:
    """An open connection. One thread may receive while another one sends."""

    def __init__(
        self, stream: WebSocket, connection: socket.socket, request: Request, where: Identity
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._request = request
        self._where = where
        self._closed = False
        self._announced: set[int] = set()
        """The channels whose first frame, the port number, was received."""

    def send(self, data: bytes) -> None:
        """Send *data*."""
        from websocket import WebSocketException

        try:
            self._stream.send_binary(bytes([_DATA]) + data)
        except (WebSocketException, OSError) as error:
            raise self._broken(error) from error

    def receive(self) -> bytes:
        """Return the next bytes; none once one side has ended the connection.

        Raises:
            PortRefusedError: Nothing listens on the port.
        """
        from websocket import (
            ABNF,
            WebSocketConnectionClosedException,
            WebSocketException,
        )

        while True:
            try:
                kind, frame = self._stream.recv_data()
            except WebSocketConnectionClosedException:
                return b""
            except (WebSocketException, OSError, ValueError, AttributeError) as error:
                if self._closed:  # The error is due to the shutdown of the socket.
                    return b""
                raise self._broken(error) from error
            if kind == ABNF.OPCODE_CLOSE:
                return b""
            channel, content = frame[0] if frame else _DATA, bytes(frame[1:])
            if channel not in self._announced:
                self._announced.add(channel)
                content = content[_PORT_SIZE:]
            if channel == _DATA and content:
                return content
            if channel == _ERROR and content:
                text = content.decode(errors="replace").strip()
                what = f"Could not {self._request} in {self._where}"
                if _REFUSED in text:
                    raise PortRefusedError(f"{what}: nothing listens on it.")
                raise ClusterUnreachableError(f"{what}: {text}.")

    def close(self) -> None:
        """End the connection at once, from any thread."""
        self._closed = True
        # Without a frame that says so: it could wait behind data that the pod does not read.
        with suppress(OSError):  # The connection may be broken already.
            self._connection.shutdown(socket.SHUT_RDWR)

    def _broken(self, error: Exception) -> ClusterUnreachableError:
        return ClusterUnreachableError(
            f"Could not {self._request} in {self._where}: the connection broke: {error}."
        )
