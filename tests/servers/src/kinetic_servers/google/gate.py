"""What every call of an HTTP API passes: the log, and the controls of tests."""

from __future__ import annotations

import asyncio
from typing import Final

from kinetic_servers.google.state import ApiError, State
from kinetic_servers.http.messages import Answer, Call, RefusedError, Service

_STATUS: Final = {"UNAUTHENTICATED": (401, "authError"), "PERMISSION_DENIED": (403, "forbidden")}
"""Code of gRPC → the status and the reason of HTTP."""


class HttpApiError(RefusedError):
    """A refusal with an `ErrorInfo`."""

    def __init__(self, error: ApiError, message: str = "") -> None:
        status, reason = _STATUS[error.code.name]
        super().__init__(status, reason, message or error.message)
        self.error = error


class Gate(Service):
    """A service whose calls are logged. Subclasses perform them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def describe(self, call: Call) -> str:
        """Return how the log shows a call."""
        raise NotImplementedError

    async def act(self, call: Call) -> Answer:
        """Perform the call; under the lock, unless its body may take long to arrive."""
        raise NotImplementedError

    def streams(self, call: Call) -> bool:
        """Return whether the body of the call may take long to arrive."""
        return False

    async def perform(self, call: Call) -> Answer:
        state = self._state
        streams = self.streams(call)
        if not streams:
            await call.read()
        try:
            with state.lock:
                state.requests.append(self.describe(call))
                state.check_alive()
                if not streams:
                    answer = await self.act(call)
                    changed = state.take_change(self.describe(call))
            if streams:
                answer = await self.act(call)
                with state.lock:
                    changed = state.take_change(self.describe(call))
            if changed and state.hook is not None:
                await asyncio.to_thread(state.hook, self.describe(call))
            state.check_alive()
        except ApiError as error:
            raise HttpApiError(error) from error
        return answer
