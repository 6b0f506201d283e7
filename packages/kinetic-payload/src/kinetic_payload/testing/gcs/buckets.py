"""Calls about buckets."""

from __future__ import annotations

from typing import Any

from kinetic_payload.testing.gcs.access import Access
from kinetic_payload.testing.gcs.answers import Answer, ApiError, json_answer, no_bucket, required
from kinetic_payload.testing.gcs.calls import Call
from kinetic_payload.testing.gcs.conditions import conditions_of
from kinetic_payload.testing.gcs.names import check_bucket_name
from kinetic_payload.testing.gcs.resources import (
    bucket_resource,
    etag_of,
    merged_bucket_fields,
    new_bucket_fields,
)
from kinetic_payload.testing.gcs.state import Bucket, State


def make_bucket(state: State, name: str, project: str, given: dict[str, Any]) -> Bucket:
    """Make a bucket, as `insert` does."""
    check_bucket_name(name)
    if name in state.buckets:
        message = "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again."
        if state.buckets[name].project == project:
            message = (
                "Your previous request to create the named bucket succeeded and you already own it."
            )
        raise ApiError(409, "conflict", message)
    now = state.now()
    made = Bucket(name, project, state.next_generation(), now, now, new_bucket_fields(given, now))
    state.buckets[name] = made
    return made


class BucketCalls:
    """What can be asked of buckets."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def insert(self, call: Call) -> Answer:
        """Make a bucket."""
        if not call.arg("project"):
            raise required("Required parameter: project")
        given = await call.json()
        made = make_bucket(self._state, str(given.get("name", "")), call.arg("project"), given)
        return json_answer(bucket_resource(made, call.base))

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
        """Show a bucket."""
        found = self._found(call, reading=True)
        return json_answer(bucket_resource(found, call.base))

    async def patch(self, call: Call) -> Answer:
        """Change the fields that are named. Every patch is a metageneration."""
        given = await call.json()
        found = self._found(call)
        found.fields = merged_bucket_fields(found.fields, given)
        return self._changed(found, call)

    async def update(self, call: Call) -> Answer:
        """Replace all fields."""
        given = await call.json()
        found = self._found(call)
        fixed = {"location": found.fields["location"]}
        found.fields = new_bucket_fields({**given, **fixed}, found.created)
        return self._changed(found, call)

    async def delete(self, call: Call) -> Answer:
        """Delete a bucket that holds nothing."""
        found = self._found(call)
        if found.objects:
            raise ApiError(409, "conflict", "The bucket you tried to delete is not empty.")
        del self._state.buckets[call.bucket]
        return Answer(204)

    async def test_permissions(self, call: Call) -> Answer:
        """Tell which of the permissions the caller has."""
        found = self._found(call)
        asked = call.query.get("permissions", [])
        if not asked:
            raise required("Required parameter: permissions")
        held = [one for one in asked if self._access.holds(call.principal, found, one)]
        data: dict[str, Any] = {"kind": "storage#testIamPermissionsResponse"}
        return json_answer({**data, "permissions": held} if held else data)

    async def get_policy(self, call: Call) -> Answer:
        """Show who may do what, as far as it is limited."""
        found = self._found(call)
        data = {
            "kind": "storage#policy",
            "resourceId": f"projects/_/buckets/{call.bucket}",
            "version": 1,
            "etag": etag_of(found.generation, found.metageneration),
            "bindings": [],
        }
        return json_answer(data)

    async def get_layout(self, call: Call) -> Answer:
        """Tell where a bucket lies; gcsfuse asks for it."""
        found = self._found(call)
        data = {
            "kind": "storage#storageLayout",
            "bucket": call.bucket,
            "location": found.fields["location"],
            "hierarchicalNamespace": {"enabled": False},
        }
        return json_answer(data)

    def _found(self, call: Call, *, reading: bool = False) -> Bucket:
        # A bucket without billing can still be looked at.
        found = self._state.buckets.get(call.bucket)
        if found is None:
            raise no_bucket()
        if call.operation != "buckets.get":
            self._state.bucket(call.bucket)
        conditions = conditions_of(call.number)
        conditions.check((found.generation, found.metageneration), reading=reading)
        return found

    def _changed(self, found: Bucket, call: Call) -> Answer:
        found.metageneration += 1
        found.updated = self._state.now()
        return json_answer(bucket_resource(found, call.base))
