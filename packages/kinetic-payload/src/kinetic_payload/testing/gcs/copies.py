"""Copies inside the server: copy, rewrite, compose."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kinetic_payload.testing.gcs.access import Access
from kinetic_payload.testing.gcs.answers import Answer, invalid, json_answer, required
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.contents import Content
from kinetic_payload.testing.gcs.names import check_object_name
from kinetic_payload.testing.gcs.resources import object_fields, object_resource
from kinetic_payload.testing.gcs.state import State, StoredObject, check_generation

MOST_SOURCES: Final = 32


class CopyCalls:
    """Performs operations that copy objects."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def copy(self, call: Call) -> Answer:
        """Copy an object."""
        given = await call.json()
        source = self._source(call)
        self._expect(call)
        return json_answer(object_resource(self._store_copy(call, source, given), call.base))

    async def rewrite(self, call: Call) -> Answer:
        """Copy an object as `copy` does; Google may take several calls for a large one."""
        given = await call.json()
        source = self._source(call)
        self._expect(call)
        copied = self._store_copy(call, source, given)
        size = str(source.size)
        data = {
            "kind": "storage#rewriteResponse",
            "objectSize": size,
            "done": True,
            "totalBytesRewritten": size,
        }
        return json_answer({**data, "resource": object_resource(copied, call.base)})

    async def compose(self, call: Call) -> Answer:
        """Join up to 32 objects of a bucket into one, which has no MD5."""
        check_object_name(call.name)
        given = await call.json()
        parts = given.get("sourceObjects") or []
        target = given.get("destination") or {}
        if not isinstance(parts, list) or not all(
            isinstance(item, dict) for item in [target, *parts]
        ):
            raise invalid("Invalid compose request.")
        if not parts:
            raise required("You must provide at least one source component.")
        if len(parts) > MOST_SOURCES:
            raise invalid(
                f"The number of source components provided ({len(parts)}) exceeds the maximum ({MOST_SOURCES})"
            )
        sources = [self._component(call, part) for part in parts]
        fields = object_fields(target)
        first = sources[0].fields.get("contentType", "application/octet-stream")
        fields.setdefault("contentType", first)
        content = await self._join([source.content for source in sources])
        self._access.demand_overwrite(call, call.bucket, call.name)
        stored = self._state.store(
            call.bucket, call.name, content, fields, call.number("ifGenerationMatch"),
            components=sum(source.components or 1 for source in sources),
        )  # fmt: skip
        return json_answer(object_resource(stored, call.base))

    def _source(self, call: Call) -> StoredObject:
        check_object_name(call.to_name)
        generation = call.number("sourceGeneration")
        source = self._state.object(call.bucket, call.name, generation)
        check_generation(call.number("ifSourceGenerationMatch"), source)
        return source

    def _expect(self, call: Call) -> None:
        found = self._state.bucket(call.to_bucket).objects.get(call.to_name)
        check_generation(call.number("ifGenerationMatch"), found)
        self._access.demand_overwrite(call, call.to_bucket, call.to_name)

    def _store_copy(self, call: Call, source: StoredObject, given: dict[str, Any]) -> StoredObject:
        # Given metadata replaces all metadata of the source.
        fields = object_fields(given) if given else dict(source.fields)
        return self._state.store(
            call.to_bucket, call.to_name, source.content, fields, call.number("ifGenerationMatch"),
            components=source.components,
        )  # fmt: skip

    def _component(self, call: Call, part: dict[str, Any]) -> StoredObject:
        name = str(part.get("name", ""))
        check_object_name(name)
        source = self._state.object(call.bucket, name)
        self._access.demand(call, "storage.objects.get", call.bucket)
        return source

    async def _join(self, contents: list[Content]) -> Content:
        incoming = self._state.incoming(composite=True)

        def join() -> Content:
            for content in contents:
                for chunk in content.chunks():
                    incoming.write(chunk)
            return incoming.finish()

        return await asyncio.get_running_loop().run_in_executor(None, join)
