"""An editor's side of the Debug Adapter Protocol, as little as tests need."""

from __future__ import annotations

import json
import socket
from typing import Any


class Editor:
    """One debugging session with a job, by the configuration that Kinetic printed."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        connect = configuration["connect"]
        self._socket = socket.create_connection((connect["host"], connect["port"]))
        self._stream = self._socket.makefile("rb")
        self._passed: list[dict[str, Any]] = []
        self._sent = 0
        self.ask("initialize", adapterID="debugpy", pathFormat="path", linesStartAt1=True)
        self.send("attach", **configuration)
        self.event("initialized")

    def send(self, command: str, **arguments: Any) -> int:
        self._sent += 1
        body = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(body).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        return self._sent

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        number = self.send(command, **arguments)
        message = self._next(type="response", request_seq=number)
        assert message["success"], message
        return message.get("body") or {}

    def event(self, name: str) -> dict[str, Any]:
        return self._next(type="event", event=name).get("body") or {}

    def _next(self, **wanted: object) -> dict[str, Any]:
        """Return the next message that is as *wanted*; what comes before it is kept for later.

        The function may stop before the answer is here that lets it go on.
        """
        others = []
        while True:
            message = self._passed.pop(0) if self._passed else self._read()
            if all(message.get(key) == value for key, value in wanted.items()):
                self._passed = others + self._passed
                return message
            others.append(message)

    def stops_at(self) -> tuple[str, int, str]:
        """Wait for a stop; return the file and the line, and what the function's *x* is there."""
        thread = self.event("stopped")["threadId"]
        top = self.ask("stackTrace", threadId=thread, levels=1)["stackFrames"][0]
        seen = self.ask("evaluate", expression="x", frameId=top["id"], context="watch")["result"]
        self.send("continue", threadId=thread)
        return top["source"]["path"], top["line"], seen

    def _read(self) -> dict[str, Any]:
        size = 0
        while (line := self._stream.readline()) != b"\r\n":
            assert line, "The debugger closed the connection."
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(self._stream.read(size))
        return message

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def configuration_from(stream: Any) -> tuple[dict[str, Any], str]:
    """Read *stream* up to the end of the printed configuration; return it, and all of the text."""
    text = ""
    while not text.endswith("\n}\n"):
        line = stream.readline()
        assert line, text
        text += line
    configuration: dict[str, Any] = json.loads(text[text.index("{\n") :])
    return configuration, text
