"""Operations on buckets."""

from __future__ import annotations

import time
from typing import Any

from kinetic_payload.testing.gcs.access import Access
from kinetic_payload.testing.gcs.answers import Answer, ApiError, json_answer, no_bucket, required
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.names import check_bucket_name
from kinetic_payload.testing.gcs.resources import bucket_resource
from kinetic_payload.testing.gcs.state import Bucket, State


def make_bucket(
    state: State, name: str, project: str, location: str = "US", regions: tuple[str, ...] = ()
) -> Bucket:
    """Create a bucket."""
    check_bucket_name(name)
    if name in state.buckets:
        message = (
            "The requested bucket name is not available. The bucket namespace is shared by all users of "
            "the system. Please select a different name and try again."
        )
        if state.buckets[name].project == project:
            message = (
                "Your previous request to create the named bucket succeeded and you already own it."
            )
        raise ApiError(409, "conflict", message)
    bucket = Bucket(
        name,
        project,
        state.next_generation(),
        time.time(),
        location=location,
        regions=regions,
    )
    state.buckets[name] = bucket
    return bucket


class BucketCalls:
    """Performs operations on buckets."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def insert(self, call: Call) -> Answer:
        """Create a bucket."""
        if not call.arg("project"):
            raise required("Required parameter: project")
        given = await call.json()
        bucket = make_bucket(
            self._state,
            str(given.get("name", "")),
            call.arg("project"),
            str(given.get("location") or "US").upper(),
        )
        return json_answer(bucket_resource(bucket, call.base))

    async def list(self, call: Call) -> Answer:
        """List the buckets of a project."""
        if not call.arg("project"):
            raise required("Required parameter: project")
        limit = call.number("maxResults") or 1000
        names = sorted(
            name
            for name, bucket in self._state.buckets.items()
            if bucket.project == call.arg("project")
            if name.startswith(call.arg("prefix")) and name > call.arg("pageToken")
        )
        page = names[: min(limit, 1000)]
        items = [bucket_resource(self._state.buckets[name], call.base) for name in page]
        data: dict[str, Any] = {"kind": "storage#buckets", "items": items}
        if len(names) > len(page):
            data["nextPageToken"] = page[-1]
        return json_answer(data)

    async def get(self, call: Call) -> Answer:
        """Return a bucket."""
        found = self._bucket_of(call)
        return json_answer(bucket_resource(found, call.base))

    async def delete(self, call: Call) -> Answer:
        """Delete an empty bucket."""
        found = self._bucket_of(call)
        if found.objects:
            raise ApiError(409, "conflict", "The bucket you tried to delete is not empty.")
        del self._state.buckets[call.bucket]
        return Answer(204)

    def _bucket_of(self, call: Call) -> Bucket:
        found = self._state.buckets.get(call.bucket)
        if found is None:
            raise no_bucket()
        # A bucket without billing can still be read.
        return found if call.operation == "buckets.get" else self._state.bucket(call.bucket)
