"""Operations on objects."""

from __future__ import annotations

from typing import Any

from kinetic_payload.testing.gcs.access import Access
from kinetic_payload.testing.gcs.answers import Answer, ApiError, invalid, json_answer
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.downloads import download
from kinetic_payload.testing.gcs.listing import Listing, page_of, pattern_of
from kinetic_payload.testing.gcs.names import check_object_name
from kinetic_payload.testing.gcs.resources import (
    merged_object_fields,
    object_resource,
)
from kinetic_payload.testing.gcs.state import State, StoredObject, check_generation

LARGEST_PAGE = 1000


class ObjectCalls:
    """Performs operations on objects."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def get(self, call: Call) -> Answer:
        """Return an object."""
        found = self._object_of(call)
        return json_answer(object_resource(found, call.base))

    async def download(self, call: Call) -> Answer:
        """Return the bytes of an object, or a range of them."""
        found = self._object_of(call)
        return download(found, call.headers.get("range"))

    async def patch(self, call: Call) -> Answer:
        """Change the given fields, which increases the metageneration."""
        given = await call.json()
        found = self._object_of(call)
        fields = merged_object_fields(found.fields, given)
        return json_answer(object_resource(self._state.change(found, fields), call.base))

    async def delete(self, call: Call) -> Answer:
        """Delete an object."""
        self._state.delete(self._object_of(call))
        return Answer(204)

    async def list(self, call: Call) -> Answer:
        """Return a page of a list of objects. There are no old versions."""
        home = self._state.bucket(call.bucket)
        glob = call.arg("matchGlob")
        if glob and call.arg("delimiter"):
            raise invalid("This server does not support matchGlob with a delimiter.")
        limit = call.number("maxResults")
        if limit is not None and limit < 0:
            raise invalid(f"Invalid value for maxResults: '{limit}'.")
        wanted = Listing(
            prefix=call.arg("prefix"),
            delimiter=call.arg("delimiter"),
            start=call.arg("startOffset"),
            end=call.arg("endOffset"),
            match=pattern_of(glob) if glob else None,
            limit=min(limit or LARGEST_PAGE, LARGEST_PAGE),
            token=call.arg("pageToken"),
        )
        data: dict[str, Any] = {"kind": "storage#objects"}
        page = page_of(home.names, wanted)
        if page.token:
            data["nextPageToken"] = page.token
        if page.prefixes:
            data["prefixes"] = page.prefixes
        if page.names:
            data["items"] = [object_resource(home.objects[name], call.base) for name in page.names]
        return json_answer(data)

    def _object_of(self, call: Call) -> StoredObject:
        self._state.bucket(call.bucket)
        check_object_name(call.name)
        expected = call.number("ifGenerationMatch")
        try:
            found = self._state.object(call.bucket, call.name, call.number("generation"))
        except ApiError:
            # A caller that may not list does not learn that an object is missing.
            self._access.demand(call, "storage.objects.list", call.bucket, "bucket")
            raise
        check_generation(expected, found)
        return found
