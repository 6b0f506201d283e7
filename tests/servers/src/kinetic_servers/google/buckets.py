"""Buckets of the projects: the bucket server, with the controls of tests."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from google.iam.v1 import policy_pb2

from kinetic_servers.gcs import GcsServer
from kinetic_servers.gcs.access import NEEDS
from kinetic_servers.gcs.errors import denied
from kinetic_servers.gcs.service import GcsService
from kinetic_servers.gcs.state import Bucket
from kinetic_servers.google.gate import Gate, HttpFault
from kinetic_servers.google.policies import check_policy
from kinetic_servers.google.state import CALLER, State
from kinetic_servers.http.messages import Answer, Call, RefusedError

_CHANGING: Final = {
    "buckets.delete", "buckets.insert", "buckets.patch", "objects.copy", "objects.delete", "objects.insert",
    "objects.patch", "objects.rewrite",
}  # fmt: skip


class Buckets(GcsServer):
    """The buckets of all projects. A bucket of an unknown project is a stranger's."""

    def __init__(self, state: State, faults: list[HttpFault], *, host: str) -> None:
        super().__init__(host=host)
        self._cloud = state
        self._cloud_faults = faults

    def service(self, folder: Path) -> Any:
        inner = super().service(folder)
        assert self._state is not None, "it is being started"
        state = self._state
        state.denied = self._cloud.denied
        state.number_of = self._number
        state.check_policy = lambda policy: check_policy(self._cloud, policy, "storage")
        return BucketGate(self._cloud, self._cloud_faults, inner, self)

    def policies(self) -> list[policy_pb2.Policy]:
        """Return the policies of all buckets, to be changed under the lock of the cloud."""
        buckets = self._state.buckets if self._state else {}
        return [each.iam for each in buckets.values()]

    def resources(self) -> list[tuple[str, str]]:
        """Return the projects and names of all buckets."""
        return self._do(
            lambda state: [(each.project, each.name) for each in state.buckets.values()]
        )

    def owner(self, name: str) -> str | None:
        """Return the project of a bucket; for calls of the server itself."""
        found = self._state.buckets.get(name) if self._state else None
        return found.project if found else None

    def etag(self, name: str) -> bytes:
        """Return the etag of a bucket's policy; for calls of the server itself."""
        found = self._state.buckets.get(name) if self._state else None
        return found.iam.etag if found else b""

    def give(self, name: str, project: str) -> None:
        """Let a bucket be one of another project."""

        def change(found: Bucket) -> None:
            found.project, found.number = project, self._number(project)

        self._do(lambda state: change(state.buckets[name]))

    def _number(self, project: str) -> int:
        found = self._cloud.project(project)
        return found.number if found else 1


class BucketGate(Gate):
    """The bucket service with the controls of tests."""

    def __init__(
        self, state: State, faults: list[HttpFault], inner: GcsService, server: Buckets
    ) -> None:
        super().__init__(state, faults)
        self._inner = inner
        self._server = server
        self.headers = inner.headers

    def route(self, call: Call) -> None:
        self._inner.route(call)

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        return self._inner.refuse(call, error)

    def injected(self, status: int, code: str) -> RefusedError:
        return self._inner.injected(status, code)

    def describe(self, call: Call) -> str:
        return f"{call.operation} {'/'.join(filter(None, (call.bucket, call.name)))}".strip()

    async def prepare(self, call: Call) -> None:
        if not call.operation.startswith("buckets."):
            return
        await super().prepare(call)
        if call.operation == "buckets.insert":
            with suppress(ValueError, AttributeError):
                call.name = str(json.loads(await call.read()).get("name", ""))

    async def act(self, call: Call) -> Answer:
        self._admit(call)
        before = self._server.etag(call.bucket)
        answer = await self._inner.perform(call)
        changed = call.operation in _CHANGING or self._server.etag(call.bucket) != before
        finished = call.operation == "objects.insert.chunk" and answer.status == 200
        if finished or (changed and answer.status < 300):
            self._state.mark()
        return answer

    async def _locked(self, call: Call) -> tuple[Answer, bool]:
        if call.operation.startswith("buckets."):
            return await super()._locked(call)
        # A body may take long to arrive.
        answer = await self.act(call)
        with self._state.lock:
            return answer, self._state.take_change(self.describe(call))

    def _admit(self, call: Call) -> None:
        permission, on = NEEDS.get(call.operation, ("", "bucket"))
        owner = self._server.owner(call.bucket)
        strange = owner is not None and owner not in self._state.projects
        if permission in self._state.denied or strange:
            raise denied(CALLER, permission or "storage.buckets.get", on)
        if call.operation not in ("buckets.insert", "buckets.list"):
            return
        project = self._state.project(call.arg("project"))
        if project is None or project.deleted:
            raise RefusedError(400, "invalid", f"Unknown project id: {call.arg('project')}")
        if not project.billing and call.operation == "buckets.insert":
            raise RefusedError(
                403,
                "accountDisabled",
                "The billing account for the owning project is disabled in state absent",
            )
        call.query["project"] = [project.id]
