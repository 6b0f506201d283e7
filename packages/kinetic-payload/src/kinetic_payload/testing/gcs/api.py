"""The operations of the JSON API, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from kinetic_payload.testing.gcs.access import Access, Tokens
from kinetic_payload.testing.gcs.answers import TEXT, Answer, ApiError, invalid, json_answer
from kinetic_payload.testing.gcs.buckets import BucketCalls
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.copies import CopyCalls
from kinetic_payload.testing.gcs.fields import parse_fields, select
from kinetic_payload.testing.gcs.identity import IdentityCalls
from kinetic_payload.testing.gcs.objects import ObjectCalls
from kinetic_payload.testing.gcs.resources import KNOWN_FIELDS
from kinetic_payload.testing.gcs.resumable import ResumableCalls
from kinetic_payload.testing.gcs.state import State
from kinetic_payload.testing.gcs.uploads import UploadCalls

Performer = Callable[[Call], Awaitable[Answer]]


class Api:
    """Performs calls on a state."""

    def __init__(self, state: State, tokens: Tokens | None) -> None:
        self._access = Access(state, tokens)
        buckets = BucketCalls(state, self._access)
        objects = ObjectCalls(state, self._access)
        copies = CopyCalls(state, self._access)
        uploads = UploadCalls(state, self._access)
        identity = IdentityCalls(tokens)
        resumable = ResumableCalls(state, self._access)
        self._performers: dict[str, Performer] = {
            "buckets.insert": buckets.insert,
            "buckets.list": buckets.list,
            "buckets.get": buckets.get,
            "buckets.delete": buckets.delete,
            "objects.list": objects.list,
            "objects.get": objects.get,
            "objects.get.media": objects.download,
            "objects.patch": objects.patch,
            "objects.delete": objects.delete,
            "objects.copy": copies.copy,
            "objects.rewrite": copies.rewrite,
            "objects.compose": copies.compose,
            "objects.insert": uploads.insert,
            "objects.insert.start": resumable.start,
            "objects.insert.chunk": resumable.chunk,
            "objects.insert.status": resumable.status,
            "token": identity.token,
            "metadata": identity.metadata,
        }

    async def perform(self, call: Call) -> Answer:
        """Return the response to a call."""
        performer = self._performers.get(call.operation)
        if call.operation == "malformed":
            return invalid("The request is not valid UTF-8.").answer()
        if performer is None:
            return Answer(404, b"Not Found", {"Content-Type": TEXT})
        try:
            if call.operation not in ("token", "metadata"):
                self._access.identify(call)
            self._access.permit(call)
            mask = parse_fields(call.arg("fields"), KNOWN_FIELDS) if call.arg("fields") else None
            answer = await performer(call)
        except ApiError as error:
            return error.answer(plain=call.media)
        if mask is not None and not call.media and answer.status == 200:
            return _selected_fields(answer, mask)
        return answer


def _selected_fields(answer: Answer, mask: Any) -> Answer:
    if not isinstance(answer.body, bytes) or not answer.body.startswith(b"{"):
        return answer
    return json_answer(select(json.loads(answer.body), mask), headers=answer.headers)
