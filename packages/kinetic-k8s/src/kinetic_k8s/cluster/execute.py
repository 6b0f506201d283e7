"""Commands in containers, with the streams of this process: websockets of the API server."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from kinetic_k8s.errors import ClusterError, ClusterUnreachableError

if TYPE_CHECKING:
    from websocket import WebSocket

    from kinetic_k8s.cluster.translation import Identity, Request

PROTOCOL: Final = "v5.channel.k8s.io"
"""The first version that can tell the command that its input has ended. API servers have it since Kubernetes 1.29:
https://kubernetes.io/blog/2024/08/20/websockets-transition/
"""
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3
_RESIZE: Final = 4
_CLOSE: Final = 255
_CHUNK: Final = 32768


class Execution:
    """A command that runs in a container. One thread may receive while others send."""

    def __init__(
        self, stream: WebSocket, connection: socket.socket, request: Request, where: Identity
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._title = f"{request} in {where}"

    def run(self, *, terminal: bool) -> int:
        """Connect it with this process's streams until it ends; return its exit code.

        With *terminal*, the keys of this process's terminal go to the command as they are typed.

        Raises:
            ClusterUnreachableError: The connection broke; the command may go on.
            ClusterError: The command could not be started.
        """
        try:
            with self._raw_terminal() if terminal else nullcontext():
                threading.Thread(target=self._send_input, daemon=True).start()
                return self._receive()
        finally:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _receive(self) -> int:
        from websocket import ABNF, WebSocketException

        while True:
            try:
                kind, frame = self._stream.recv_data()
            except (WebSocketException, OSError, ValueError, AttributeError) as error:
                raise ClusterUnreachableError(
                    f"Could not {self._title}: the connection broke: {error}. The command may go on."
                ) from error
            if kind == ABNF.OPCODE_CLOSE:
                raise ClusterUnreachableError(
                    f"Could not {self._title}: the server ended the connection. The command may go on."
                )
            if not frame:
                continue
            channel, left = frame[0], memoryview(frame)[1:]
            if channel == _STATUS:
                status = json.loads(bytes(left))
                if status.get("status") == "Success":
                    return 0
                for cause in (status.get("details") or {}).get("causes") or ():
                    if cause.get("reason") == "ExitCode":
                        return int(cause["message"])
                raise ClusterError(
                    f"Could not {self._title}: {status.get('message', 'no reason is known')}."
                )
            while left and channel in (_STDOUT, _STDERR):
                left = left[os.write(channel, left) :]

    def _send_input(self) -> None:
        from websocket import WebSocketException

        with suppress(WebSocketException, OSError):
            while data := os.read(_STDIN, _CHUNK):
                self._stream.send_binary(bytes([_STDIN]) + data)
            self._stream.send_binary(bytes([_CLOSE, _STDIN]))

    @contextmanager
    def _raw_terminal(self) -> Iterator[None]:
        # Not where Windows would import them.
        import termios
        import tty

        def resize(*_: object) -> None:
            size = os.get_terminal_size(_STDIN)
            message = {"Width": size.columns, "Height": size.lines}
            self._stream.send_binary(bytes([_RESIZE]) + json.dumps(message).encode())

        settings = termios.tcgetattr(_STDIN)
        before = signal.signal(signal.SIGWINCH, resize)
        try:
            resize()
            tty.setraw(_STDIN, termios.TCSADRAIN)  # What was typed already is kept.
            yield
        finally:
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, settings)
            signal.signal(signal.SIGWINCH, before)
