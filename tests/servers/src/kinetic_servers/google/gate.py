"""What every call of an HTTP API passes: the log, faults, and the controls of tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kinetic_servers.google.state import ApiError, State
from kinetic_servers.http.messages import Answer, Call, RefusedError, Service

STATUS = {
    "UNAUTHENTICATED": (401, "authError"),
    "PERMISSION_DENIED": (403, "forbidden"),
    "NOT_FOUND": (404, "notFound"),
    "ALREADY_EXISTS": (409, "alreadyExists"),
    "ABORTED": (409, "aborted"),
    "FAILED_PRECONDITION": (412, "conditionNotMet"),
    "INVALID_ARGUMENT": (400, "invalid"),
}
"""Code of gRPC → the status and the reason of HTTP."""


class HttpApiError(RefusedError):
    """A refusal with an `ErrorInfo`."""

    def __init__(self, error: ApiError, message: str = "") -> None:
        status, reason = STATUS[error.code.name]
        super().__init__(status, reason, message or error.message)
        self.error = error


@dataclass
class HttpFault:
    """A failure of calls of one operation."""

    operation: str
    error: RefusedError
    times: int
    after: bool


class Gate(Service):
    """A service whose calls are logged, and fail where a test says so. Subclasses perform them."""

    def __init__(self, state: State, faults: list[HttpFault]) -> None:
        self._state = state
        self._faults = faults

    def describe(self, call: Call) -> str:
        """Return how the log shows a call."""
        raise NotImplementedError

    async def prepare(self, call: Call) -> None:
        """Read the body, so that `act` does not have to wait for it."""
        body = await call.read()

        async def again() -> AsyncIterator[bytes]:
            yield body

        call.chunks = again

    async def act(self, call: Call) -> Answer:
        """Perform the call under the lock; it must not wait if it changes a resource."""
        raise NotImplementedError

    async def perform(self, call: Call) -> Answer:
        await self.prepare(call)
        with self._state.lock:
            self._state.requests.append(self.describe(call))
            fault = next((each for each in self._faults if each.operation == call.operation), None)
            if fault is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
        try:
            self._state.check_alive()
            if fault is not None and not fault.after:
                raise fault.error
            answer, changed = await self._locked(call)
            if changed and self._state.hook is not None:
                await asyncio.to_thread(self._state.hook, self.describe(call))
            self._state.check_alive()
        except ApiError as error:
            raise HttpApiError(error) from error
        if fault is not None:
            raise fault.error
        return answer

    async def _locked(self, call: Call) -> tuple[Answer, bool]:
        with self._state.lock:
            self._state.check_alive()
            answer = await self.act(call)
            return answer, self._state.take_change(self.describe(call))
