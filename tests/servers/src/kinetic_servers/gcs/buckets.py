"""Operations on buckets."""

from __future__ import annotations

import time

from kinetic_servers.gcs.access import Access
from kinetic_servers.gcs.arguments import check_bucket_name, json_of
from kinetic_servers.gcs.errors import no_bucket, required
from kinetic_servers.gcs.resources import bucket_resource
from kinetic_servers.gcs.state import Bucket, State
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer


def make_bucket(
    state: State, name: str, project: str, location: str = "US", regions: tuple[str, ...] = ()
) -> Bucket:
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
        raise RefusedError(409, "conflict", message)
    made = Bucket(
        name, project, state.next_generation(), time.time(), location=location, regions=regions
    )
    state.buckets[name] = made
    return made


class BucketCalls:
    """Performs operations on buckets."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def insert(self, call: Call) -> Answer:
        project, given = _project(call), await json_of(call)
        location = str(given.get("location") or "US").upper()
        made = make_bucket(self._state, str(given.get("name", "")), project, location)
        return json_answer(bucket_resource(made, call.base))

    async def list(self, call: Call) -> Answer:
        """List the buckets of a project, on one page."""
        project, buckets = _project(call), self._state.buckets
        found = (name for name in sorted(buckets) if name.startswith(call.arg("prefix")))
        items = [
            bucket_resource(buckets[name], call.base)
            for name in found
            if buckets[name].project == project
        ]
        return json_answer({"kind": "storage#buckets", "items": items})

    async def get(self, call: Call) -> Answer:
        return json_answer(bucket_resource(self._bucket_of(call), call.base))

    async def delete(self, call: Call) -> Answer:
        found = self._bucket_of(call)
        if found.objects:
            raise RefusedError(409, "conflict", "The bucket you tried to delete is not empty.")
        del self._state.buckets[call.bucket]
        return Answer(204)

    def _bucket_of(self, call: Call) -> Bucket:
        found = self._state.buckets.get(call.bucket)
        if found is None:
            raise no_bucket()
        # A bucket without billing can still be read.
        return found if call.operation == "buckets.get" else self._state.bucket(call.bucket)


def _project(call: Call) -> str:
    if not call.arg("project"):
        raise required("Required parameter: project")
    return call.arg("project")
