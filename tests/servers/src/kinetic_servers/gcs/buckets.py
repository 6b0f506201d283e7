"""Operations on buckets."""

from __future__ import annotations

import time
from typing import Any

from google.iam.v1 import policy_pb2
from google.protobuf import json_format

from kinetic_servers.gcs.access import Access
from kinetic_servers.gcs.arguments import check_bucket_name, json_of, number
from kinetic_servers.gcs.bucket_fields import bucket_fields, check_location, merged_bucket_fields
from kinetic_servers.gcs.errors import invalid, no_bucket, precondition_failed, required
from kinetic_servers.gcs.resources import bucket_resource
from kinetic_servers.gcs.state import Bucket, State
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer
from kinetic_servers.policies import is_stale, new_etag, read, replaced

_PUBLIC = {"allUsers", "allAuthenticatedUsers"}


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
    generation, now, of = state.next_generation(), time.time(), state.number_of(project)
    made = Bucket(name, project, generation, now, of, location=location, regions=regions)
    made.fields = bucket_fields({})
    for role, members in (("Owner", ("Editor", "Owner")), ("Reader", ("Viewer",))):
        binding = made.iam.bindings.add(role=f"roles/storage.legacyBucket{role}")
        binding.members.extend(f"project{each}:{project}" for each in members)
    made.iam.version, made.iam.etag = 1, new_etag()
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
        fields = bucket_fields(given)
        check_location(location)
        call.name = str(given.get("name", ""))
        made = make_bucket(self._state, call.name, project, location)
        made.fields = fields
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

    async def patch(self, call: Call) -> Answer:
        found, given = self._bucket_of(call), await json_of(call)
        if number(call, "ifMetagenerationMatch") not in (None, found.metageneration):
            raise precondition_failed()
        found.fields = merged_bucket_fields(found.fields, given)
        found.metageneration += 1
        found.updated = time.time()
        return json_answer(bucket_resource(found, call.base))

    async def get_policy(self, call: Call) -> Answer:
        version = number(call, "optionsRequestedPolicyVersion") or 1
        if version not in (1, 3):
            raise invalid(f"Invalid policy version: {version}.")
        found = self._bucket_of(call)
        return json_answer(_shown(read(found.iam, version), found.name))

    async def set_policy(self, call: Call) -> Answer:
        found, given = self._bucket_of(call), await json_of(call)
        wanted = {key: given[key] for key in given if key not in ("kind", "resourceId")}
        try:
            new = json_format.ParseDict(wanted, policy_pb2.Policy())
        except json_format.ParseError as error:
            raise invalid(f"Invalid JSON payload received. {error}") from error
        if not found.fields["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"]:
            raise invalid(
                "A policy needs uniform bucket-level access to be enabled for the bucket."
            )
        if is_stale(found.iam, new):
            raise precondition_failed()
        members = {member for binding in new.bindings for member in binding.members}
        prevented = found.fields["iamConfiguration"]["publicAccessPrevention"] == "enforced"
        if prevented and (public := members & _PUBLIC):
            raise RefusedError(
                412,
                "conditionNotMet",
                f"The member bindings {' and '.join(sorted(public))} are not allowed since public access "
                "prevention is enforced.",
            )
        self._state.check_policy(new)
        found.iam = replaced(found.iam, new) or found.iam
        return json_answer(_shown(found.iam, found.name))

    async def test_permissions(self, call: Call) -> Answer:
        self._bucket_of(call)
        asked = call.query.get("permissions", [])
        held = [each for each in asked if each not in self._state.denied]
        return json_answer({"kind": "storage#testIamPermissionsResponse", "permissions": held})

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


def _shown(policy: policy_pb2.Policy, bucket: str) -> dict[str, Any]:
    found = json_format.MessageToDict(policy)
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{bucket}", **found}


def _project(call: Call) -> str:
    if not call.arg("project"):
        raise required("Required parameter: project")
    return call.arg("project")
