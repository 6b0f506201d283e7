"""Buckets of the projects: the bucket server, with the controls of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.iam.v1 import policy_pb2

from kinetic_servers.gcs import GcsServer
from kinetic_servers.gcs.access import NEEDS
from kinetic_servers.gcs.errors import denied
from kinetic_servers.gcs.service import GcsService
from kinetic_servers.gcs.state import Bucket
from kinetic_servers.google.gate import Gate
from kinetic_servers.google.policies import check_policy
from kinetic_servers.google.state import CALLER, State
from kinetic_servers.http.messages import Answer, Call, RefusedError

_CHANGING: Final = {
    "buckets.delete", "buckets.insert", "buckets.patch", "buckets.setIamPolicy", "objects.delete", "objects.insert",
    "objects.insert.chunk", "objects.patch", "objects.rewrite",
}  # fmt: skip


class Buckets(GcsServer):
    """The buckets of all projects. A bucket of an unknown project is a stranger's."""

    def __init__(self, state: State, *, host: str) -> None:
        super().__init__(host=host)
        self._cloud = state

    def service(self, folder: Path) -> Any:
        inner = super().service(folder)
        assert self._state is not None, "it is being started"
        state = self._state
        state.denied = self._cloud.denied
        state.number_of = self._number
        state.check_policy = lambda policy: check_policy(self._cloud, policy, "storage")
        return BucketGate(self._cloud, inner, self)

    @property
    def buckets(self) -> dict[str, Bucket]:
        """The buckets, by name; for calls of the server itself."""
        return self._state.buckets if self._state else {}

    def policies(self) -> list[policy_pb2.Policy]:
        """Return the policies of all buckets, to be changed under the lock of the cloud."""
        return [each.iam for each in self.buckets.values()]

    def resources(self) -> list[tuple[str, str]]:
        """Return the projects and names of all buckets."""
        return self._do(
            lambda state: [(each.project, each.name) for each in state.buckets.values()]
        )

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

    def __init__(self, state: State, inner: GcsService, server: Buckets) -> None:
        super().__init__(state)
        self._server = server
        self._perform = inner.perform
        self.headers, self.route = inner.headers, inner.route  # type: ignore[method-assign]
        self.refuse, self.injected = inner.refuse, inner.injected  # type: ignore[method-assign]

    def describe(self, call: Call) -> str:
        return f"{call.operation} {'/'.join(filter(None, (call.bucket, call.name)))}".strip()

    def streams(self, call: Call) -> bool:
        return not call.operation.startswith("buckets.")

    async def act(self, call: Call) -> Answer:
        permission, on = NEEDS.get(call.operation, ("", "bucket"))
        found = self._server.buckets.get(call.bucket)
        strange = found is not None and found.project not in self._state.projects
        if permission in self._state.denied or strange:
            raise denied(CALLER, permission or "storage.buckets.get", on)
        if call.operation == "buckets.insert":
            self._check_project(call.arg("project"))
        answer = await self._perform(call)
        if call.operation in _CHANGING and answer.status < 300:
            self._state.mark()
        return answer

    def _check_project(self, name: str) -> None:
        project = self._state.project(name)
        if project is None or project.deleted:
            raise RefusedError(400, "invalid", f"Unknown project id: {name}")
        if not project.billing:
            raise RefusedError(
                403,
                "accountDisabled",
                "The billing account for the owning project is disabled in state absent",
            )
