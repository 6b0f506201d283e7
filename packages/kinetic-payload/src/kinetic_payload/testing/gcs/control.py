"""`/_kinetic/…`: faults and the request log, for tests in other processes."""

from __future__ import annotations

from kinetic_payload.testing.gcs.answers import Answer, ApiError, invalid, json_answer
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.faults import Faults
from kinetic_payload.testing.gcs.requests import Requests


async def control(call: Call, faults: Faults, requests: Requests) -> Answer:
    """Handle a request that controls the server.

    `/_kinetic/faults`: GET lists, POST adds one (arguments of `Fault`, as JSON), DELETE removes all.
    `/_kinetic/requests`: GET lists, DELETE clears. `/_kinetic/health`: GET.
    """
    match call.method, call.path:
        case "GET", "/_kinetic/health":
            return json_answer({"status": "ok"})
        case "GET", "/_kinetic/faults":
            return json_answer(faults.described())
        case "POST", "/_kinetic/faults":
            try:
                faults.add(**await call.json())
            except (TypeError, ApiError) as error:
                return invalid(f"Invalid fault: {error}").answer()
        case "DELETE", "/_kinetic/faults":
            faults.clear()
        case "GET", "/_kinetic/requests":
            return json_answer(requests.described())
        case "DELETE", "/_kinetic/requests":
            requests.clear()
        case _:
            return invalid("Unknown control request.").answer()
    return Answer(204)
