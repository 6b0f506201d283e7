"""Operations on objects, apart from uploads."""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import Any, Final

from kinetic_servers.gcs.access import Access
from kinetic_servers.gcs.arguments import check_object_name, json_of, number
from kinetic_servers.gcs.errors import invalid
from kinetic_servers.gcs.listing import Listing, page_of, pattern_of
from kinetic_servers.gcs.resources import etag_of, merged_object_fields, object_resource
from kinetic_servers.gcs.state import State, StoredObject, check_generation
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer

_RANGE: Final = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*")


class ObjectCalls:
    """Performs operations on objects."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def get(self, call: Call) -> Answer:
        return json_answer(object_resource(self._object_of(call), call.base))

    async def download(self, call: Call) -> Answer:
        """Return the bytes of an object, or a range of them."""
        found = self._object_of(call)
        headers = _headers(found)
        part = _range_of(call.headers.get("range", ""), found.size)
        if part is None:
            return Answer(200, found.content.part(0, found.size), headers)
        start, length = part
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{found.size}"
        return Answer(206, found.content.part(start, length), headers)

    async def patch(self, call: Call) -> Answer:
        """Change the given fields, which increases the metageneration."""
        given = await json_of(call)
        found = self._object_of(call)
        fields = merged_object_fields(found.fields, given)
        return json_answer(object_resource(self._state.change(found, fields), call.base))

    async def delete(self, call: Call) -> Answer:
        found = self._object_of(call)
        self._state.buckets[found.bucket].remove(found.name)
        return Answer(204)

    async def list(self, call: Call) -> Answer:
        """Return a page of a list of objects. There are no old versions."""
        home = self._state.bucket(call.bucket)
        glob = call.arg("matchGlob")
        if glob and call.arg("delimiter"):
            raise invalid("This server does not support matchGlob with a delimiter.")
        limit = number(call, "maxResults") or self._state.largest_page
        wanted = Listing(
            prefix=call.arg("prefix"),
            delimiter=call.arg("delimiter"),
            start=call.arg("startOffset"),
            end=call.arg("endOffset"),
            match=pattern_of(glob) if glob else None,
            limit=min(limit, self._state.largest_page),
            token=call.arg("pageToken"),
        )
        page = page_of(home.names, wanted)
        data: dict[str, Any] = {
            "nextPageToken": page.token,
            "prefixes": page.prefixes,
            "items": [object_resource(home.objects[name], call.base) for name in page.names],
        }
        present = {key: value for key, value in data.items() if value}
        return json_answer({"kind": "storage#objects", **present})

    async def rewrite(self, call: Call) -> Answer:
        """Copy an object, with its metadata; Google may take several calls for a large one."""
        if await json_of(call):
            raise invalid("This server gives copies no other metadata.")
        check_object_name(call.to_name)
        source = self._state.object(call.bucket, call.name)
        check_generation(number(call, "ifSourceGenerationMatch"), source)
        expected = number(call, "ifGenerationMatch")
        check_generation(expected, self._state.bucket(call.to_bucket).objects.get(call.to_name))
        self._access.demand_overwrite(call, call.to_bucket, call.to_name)
        copied = self._state.store(
            call.to_bucket, call.to_name, source.content, dict(source.fields), expected
        )
        data = {
            "kind": "storage#rewriteResponse",
            "objectSize": str(copied.size),
            "done": True,
            "totalBytesRewritten": str(copied.size),
            "resource": object_resource(copied, call.base),
        }
        return json_answer(data)

    def _object_of(self, call: Call) -> StoredObject:
        self._state.bucket(call.bucket)
        check_object_name(call.name)
        expected = number(call, "ifGenerationMatch")
        try:
            found = self._state.object(call.bucket, call.name, number(call, "generation"))
        except RefusedError:
            # A caller that may not list does not learn that an object is missing.
            self._access.demand(call, "storage.objects.list", call.bucket, "bucket")
            raise
        check_generation(expected, found)
        return found


def _range_of(header: str, size: int) -> tuple[int, int] | None:
    """Return the offset and the length of the range in *header*, or None for all bytes.

    A header without a valid single range is ignored, as HTTP requires.

    Raises:
        RefusedError: 416, none of these bytes exist.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        start, end = max(size - int(match[2]), 0), size
        satisfiable = int(match[2]) > 0 and size > 0
    else:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            return None
        satisfiable = start < size
    if not satisfiable:
        raise RefusedError(
            416,
            "requestedRangeNotSatisfiable",
            "Request range not satisfiable",
            location=("header", "Range"),
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end - start


def _headers(found: StoredObject) -> dict[str, str]:
    md5 = "" if found.content.md5 is None else f",md5={found.content.md5}"
    return {
        "Content-Type": found.fields.get("contentType", "application/octet-stream"),
        "ETag": etag_of(found.generation, found.metageneration),
        "Last-Modified": formatdate(found.updated, usegmt=True),
        "Accept-Ranges": "bytes",
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Hash": f"crc32c={found.content.crc32c}{md5}",
        "X-Goog-Stored-Content-Length": str(found.size),
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Storage-Class": "STANDARD",
        "Cache-Control": "no-cache, no-store, max-age=0, must-revalidate",
    }
