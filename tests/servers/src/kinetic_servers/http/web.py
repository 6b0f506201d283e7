"""HTTP requests and responses, with the injected faults."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final
from urllib.parse import parse_qs

from aiohttp import ClientError, web
from aiohttp.abc import AbstractStreamWriter

from kinetic_servers.http.faults import Fault, Faults, Plan
from kinetic_servers.http.messages import (
    Answer,
    Call,
    FilePart,
    RefusedError,
    Service,
    json_answer,
)
from kinetic_servers.http.requests import Logged, Requests

SMALL: Final = 64 * 1024
"""Up to this size, a body is sent together with its headers."""

_DRIPS_A_SECOND: Final = 20
_LOOK: Final = 0.005
_LONGEST_LINE: Final = 64 * 1024


class Web:
    """Handles HTTP requests with a service."""

    def __init__(self, service: Service, faults: Faults, requests: Requests, *, tls: bool) -> None:
        self._service = service
        self._faults = faults
        self._requests = requests
        self._scheme = "https" if tls else "http"

    def server(self) -> web.Server:
        """Return a server without routes and middleware, for speed."""
        return web.Server(
            self._handle,
            access_log=None,
            auto_decompress=False,
            read_bufsize=1024 * 1024,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            # docker sends a header for each type that it accepts.
            before = headers.get(name.lower())
            headers[name.lower()] = value if before is None else f"{before}, {value}"
        body = _Body(request)
        path, _, query = request.raw_path.partition("?")
        base = f"{self._scheme}://{headers.get('host', 'localhost')}"
        call = Call(request.method, path, {}, headers, body.chunks, base)
        if path.startswith("/_kinetic/"):
            return await _send(request, self._control(call), Plan())
        try:
            call.query = parse_qs(query, keep_blank_values=True, errors="strict")
            self._service.route(call)
        except UnicodeDecodeError:
            call.operation = "malformed"
        shown = {**headers, "authorization": headers.get("authorization", "").partition(" ")[0]}
        logged = Logged(
            call.method, path, dict(call.query), shown, call.operation, call.bucket,
            call.to_name or call.name, id(request.transport),
        )  # fmt: skip
        began = time.perf_counter()  # After `logged.time`, so that their sum is never too late.
        self._requests.append(logged)
        body.logged = logged
        try:
            return await self._respond(request, call, logged, body)
        except ConnectionError:
            return _NoAnswer()
        finally:
            logged.seconds = time.perf_counter() - began
            logged.name = logged.name or call.name
            logged.user = call.principal or ""

    async def _respond(
        self, request: web.BaseRequest, call: Call, logged: Logged, body: _Body
    ) -> web.StreamResponse:
        plan = body.plan = self._faults.plan(call)
        await _held(fault for fault in plan.holding if not fault.holds_body)
        if plan.delay:
            await asyncio.sleep(plan.delay)
        if plan.fault.reset == "before":
            raise _break_connection(request, plan.fault)
        answer = await self._answer(request, call, plan.fault)
        for name, given in {**self._service.headers, **answer.headers, **plan.headers}.items():
            answer.headers.pop(name, None)
            if given is not None:
                answer.headers[name] = given
        if plan.fault.reset in ("after", "request"):
            # A request without a body cannot break in the middle: its response is lost instead.
            raise _break_connection(request, plan.fault)
        logged.status, logged.bytes_out = answer.status, answer.length
        logged.user = call.principal or ""
        return await _send(request, answer, plan)

    async def _answer(self, request: web.BaseRequest, call: Call, fault: Fault) -> Answer:
        if fault.page is not None:
            page = fault.page if isinstance(fault.page, bytes) else fault.page.encode()
            kind = "application/json" if page.startswith(b"{") else "text/html"
            extra = {"Location": fault.location} if fault.location else {}
            return Answer(fault.status or 200, page, {"Content-Type": kind, **extra})
        if fault.status is not None:
            if fault.performed:
                await self._service.perform(call)
            answer = self._service.refuse(call, self._service.injected(fault.status, fault.code))
            if fault.retry_after is not None:
                after = fault.retry_after
                answer.headers["Retry-After"] = after if isinstance(after, str) else f"{after:g}"
            return answer
        if call.operation == "malformed":
            return Answer(400, b"The request is not valid UTF-8.")
        try:
            return await self._service.perform(call)
        except RefusedError as error:
            return self._service.refuse(call, error)

    def _control(self, call: Call) -> Answer:
        """Handle a request that controls the server, from a test in another process.

        `/_kinetic/requests`: GET lists the requests, DELETE forgets them.
        """
        match call.method, call.path:
            case "GET", "/_kinetic/requests":
                return json_answer(self._requests.described())
            case "DELETE", "/_kinetic/requests":
                self._requests.clear()
                return Answer(204)
        return Answer(400, b"Unknown control request.")


class _NoAnswer(web.StreamResponse):
    """The response for a broken connection. A plain exception would be logged."""

    async def prepare(self, _: web.BaseRequest) -> AbstractStreamWriter | None:
        raise ConnectionResetError("The connection is gone.")


class _Body:
    """The body of a request as it arrives. Its bytes are counted, and the faults of the plan applied."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.logged: Logged | None = None
        self.plan = Plan()

    async def chunks(self) -> AsyncIterator[bytes]:
        received, breaks_at = 0, self._breaks_at()
        holding = [fault for fault in self.plan.holding if fault.holds_body]
        while data := await self._read():
            if breaks_at is not None:
                data = data[: breaks_at - received]  # The rest arrived after the break.
            received += len(data)
            if self.logged is not None:
                self.logged.bytes_in = received
            await _held(fault for fault in holding if received >= (fault.at or 0))
            if received == breaks_at:
                yield data
                raise _break_connection(self._request, self.plan.fault)
            if self.plan.drip:
                await asyncio.sleep(len(data) / self.plan.drip)
            yield data

    async def _read(self) -> bytes:
        try:
            return await self._request.content.readany()
        except (web.RequestPayloadError, ClientError) as error:
            raise ConnectionResetError("The client closed the connection.") from error

    def _breaks_at(self) -> int | None:
        if self.plan.fault.reset != "request" or self.plan.fault.at is not None:
            return self.plan.fault.at if self.plan.fault.reset == "request" else None
        return (self._request.content_length or 0) // 2


async def _held(faults: Iterable[Fault]) -> None:
    found = list(faults)
    while any(fault.holds for fault in found):
        await asyncio.sleep(_LOOK)


async def _send(request: web.BaseRequest, answer: Answer, plan: Plan) -> web.StreamResponse:
    body, breaking = answer.body, plan.fault.reset == "response"
    if isinstance(body, FilePart) and body.length <= SMALL:
        body = body.read(0, body.length)
    if isinstance(body, bytes) and not (breaking or plan.drip or plan.fault.endless):
        return web.Response(status=answer.status, body=body, headers=answer.headers)
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    if plan.fault.endless:
        response.enable_chunked_encoding()
    else:
        response.content_length = answer.length
    await response.prepare(request)
    while plan.fault.endless and request.method != "HEAD":
        await response.write(b" " * 1024)
    until = answer.length
    if breaking:
        until = min(until // 2 if plan.fault.at is None else plan.fault.at, until)
    if request.method != "HEAD":
        await _send_body(request, response, body, until, plan.drip)
    if breaking:
        raise _break_connection(request, plan.fault)
    await response.write_eof()
    return response


async def _send_body(
    request: web.BaseRequest,
    response: web.StreamResponse,
    body: bytes | FilePart,
    until: int,
    drip: float | None,
) -> None:
    """Send a body up to the offset *until*."""
    if isinstance(body, FilePart) and not drip:
        with body.path.open("rb") as file:
            await response.write(b"")  # The headers.
            transport = request.transport
            if transport is None or transport.is_closing():
                raise ConnectionResetError("The client closed the connection.")
            if until:
                loop = asyncio.get_running_loop()
                await loop.sendfile(transport, file, body.start, until)
        return
    step = max(int(drip / _DRIPS_A_SECOND), 1) if drip else 1024 * 1024
    for start in range(0, until, step):
        length = min(step, until - start)
        if isinstance(body, FilePart):
            await response.write(body.read(start, length))
        else:
            await response.write(body[start : start + length])
        if drip:
            await asyncio.sleep(length / drip)


def _break_connection(request: web.BaseRequest, fault: Fault) -> ConnectionResetError:
    """Break the connection, and return the exception that ends the handler."""
    transport = request.transport
    if transport is not None:
        if fault.polite:
            transport.close()
        else:
            found = transport.get_extra_info("socket")
            # With a linger time of 0, the peer receives a reset instead of a normal end.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
    return ConnectionResetError("injected")
