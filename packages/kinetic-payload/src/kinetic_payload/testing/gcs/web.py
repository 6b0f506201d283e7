"""HTTP requests and responses, with the injected faults."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import ClientError, web
from aiohttp.abc import AbstractStreamWriter

from kinetic_payload.testing.gcs.answers import Answer, Slice, injected
from kinetic_payload.testing.gcs.api import Api
from kinetic_payload.testing.gcs.calls import Call, call_of
from kinetic_payload.testing.gcs.control import control
from kinetic_payload.testing.gcs.faults import Faults, Plan
from kinetic_payload.testing.gcs.requests import Logged, Requests, logged_headers

SMALL: Final = 64 * 1024
"""Up to this size, a body is sent together with its headers."""

_DRIPS_A_SECOND: Final = 20
_LOOK: Final = 0.005
_LONGEST_LINE: Final = 64 * 1024


class Web:
    """Handles HTTP requests with the API."""

    def __init__(self, api: Api, faults: Faults, requests: Requests) -> None:
        self._api = api
        self._faults = faults
        self._requests = requests

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
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = _Body(request)
        call = call_of(request.method, request.raw_path, headers, body)
        if call.operation == "control":
            answer = await control(call, self._faults, self._requests)
            return await _send(request, answer, Plan())
        logged = Logged(
            call.method, call.path, dict(call.query), logged_headers(headers), call.operation, call.bucket,
            call.to_name or call.name, id(request.transport),
        )  # fmt: skip
        began = time.perf_counter()  # After `logged.time`, so that their sum is never too late.
        self._requests.add(logged)
        body.logged = logged
        try:
            return await self._respond(request, call, logged, body)
        except ConnectionError:
            return _NoAnswer()
        finally:
            logged.seconds = time.perf_counter() - began
            logged.name = logged.name or call.name

    async def _respond(
        self, request: web.BaseRequest, call: Call, logged: Logged, body: _Body
    ) -> web.StreamResponse:
        plan = self._faults.plan(call.method, call.operation, call.bucket, logged.name)
        body.plan = plan
        while any(fault.holds for fault in plan.holding):
            await asyncio.sleep(_LOOK)
        if plan.delay:
            await asyncio.sleep(plan.delay)
        if plan.breaks("before"):
            raise _break_connection(request, plan)
        if plan.fault is not None and plan.fault.page is not None:
            answer = _portal_answer(plan.fault.page, plan.fault.status or 200, plan.fault.location)
        elif plan.fault is not None and plan.fault.status is not None:
            after = plan.fault.retry_after
            extra = {} if after is None else {"Retry-After": f"{after:g}"}
            answer = injected(plan.fault.status, extra).answer(plain=call.media)
        else:
            if request.headers.get("expect", "").lower() == "100-continue":
                if request.transport is None:
                    raise ConnectionResetError("The client closed the connection.")
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            answer = await self._api.perform(call)
        if plan.breaks("after") or plan.breaks("request"):
            # A request without a body cannot break in the middle: its response is lost instead.
            raise _break_connection(request, plan)
        logged.status, logged.bytes_out = answer.status, answer.length
        return await _send(request, answer, plan)


def _portal_answer(page: str, status: int, location: str) -> Answer:
    headers = {"Content-Type": "application/json" if page.startswith("{") else "text/html"}
    if location:
        headers["Location"] = location
    return Answer(status, page.encode(), headers)


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
        received = 0
        breaks_at = self._breaks_at()
        while data := await self._read():
            if breaks_at is not None:
                data = data[: breaks_at - received]  # The rest arrived after the break.
            received += len(data)
            if self.logged is not None:
                self.logged.bytes_in = received
            if received == breaks_at:
                yield data
                raise _break_connection(self._request, self.plan)
            if self.plan.drip:
                await asyncio.sleep(len(data) / self.plan.drip)
            yield data

    async def _read(self) -> bytes:
        try:
            return await self._request.content.readany()
        except (web.RequestPayloadError, ClientError) as error:
            raise ConnectionResetError("The client closed the connection.") from error

    def _breaks_at(self) -> int | None:
        if not self.plan.breaks("request") or self.plan.fault is None:
            return None
        if self.plan.fault.at is not None:
            return self.plan.fault.at
        return (self._request.content_length or 0) // 2


async def _send(request: web.BaseRequest, answer: Answer, plan: Plan) -> web.StreamResponse:
    body = answer.body
    breaking = plan.breaks("response")
    if isinstance(body, Slice) and (body.length <= SMALL or isinstance(body.content.data, bytes)):
        body = body.content.read(body.start, body.length)
    if isinstance(body, bytes) and not breaking and not plan.drip:
        return web.Response(status=answer.status, body=body, headers=answer.headers)
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = answer.length
    await response.prepare(request)
    until = answer.length
    if breaking and plan.fault is not None:
        half = answer.length // 2
        until = min(half if plan.fault.at is None else plan.fault.at, answer.length)
    if request.method != "HEAD":
        await _send_body(request, response, body, until, plan)
    if breaking:
        raise _break_connection(request, plan)
    await response.write_eof()
    return response


async def _send_body(
    request: web.BaseRequest,
    response: web.StreamResponse,
    body: bytes | Slice,
    until: int,
    plan: Plan,
) -> None:
    """Send a body up to the offset *until*."""
    step = max(int((plan.drip or 0) / _DRIPS_A_SECOND), 1) if plan.drip else 1024 * 1024
    if isinstance(body, Slice) and not plan.drip:
        with body.content.open() as file:
            await response.write(b"")  # The headers.
            transport = request.transport
            if transport is None or transport.is_closing():
                raise ConnectionResetError("The client closed the connection.")
            if until:
                loop = asyncio.get_running_loop()
                await loop.sendfile(transport, file, body.start, until)
        return
    for start in range(0, until, step):
        length = min(step, until - start)
        if isinstance(body, Slice):
            await response.write(body.content.read(body.start + start, length))
        else:
            await response.write(body[start : start + length])
        if plan.drip:
            await asyncio.sleep(length / plan.drip)


def _break_connection(request: web.BaseRequest, plan: Plan) -> ConnectionResetError:
    """Break the connection, and return the exception that ends the handler."""
    transport = request.transport
    if transport is not None:
        if plan.fault is not None and plan.fault.polite:
            transport.close()
        else:
            found = transport.get_extra_info("socket")
            # With a linger time of 0, the peer receives a reset instead of a normal end.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
    return ConnectionResetError("injected")
