"""The Cloud Build API as a gRPC server: builds and the queue."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Self

import grpc
from google.cloud.devtools import cloudbuild_v1
from google.longrunning import operations_pb2

from kinetic_servers.cloud_build.execution import BucketObjects, Execution
from kinetic_servers.cloud_build.steps import Steps
from kinetic_servers.cloud_build.validation import REGIONS, invalid
from kinetic_servers.rpc import Method, RpcServer, packed

_SERVICE: Final = "google.devtools.cloudbuild.v1.CloudBuild"
_Status: Final = cloudbuild_v1.Build.Status


class CloudBuildServer(RpcServer):
    """Cloud Build for one project. Use it in a `with` block.

    *buckets* is the address of the bucket server (`http://HOST:PORT`), *steps* runs the steps. Two builds run at
    once; others wait. `requests` are the methods that were called.
    """

    domain = "cloudbuild.googleapis.com"

    def __init__(
        self,
        buckets: str,
        steps: Steps,
        *,
        project: str = "test-project",
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        super().__init__(credentials)
        self.project = project
        self.secrets: dict[str, str] = {}
        """Secret Manager: `projects/P/secrets/S/versions/V` → value."""
        self.accounts: set[str] = set()
        """The e-mail addresses of the service accounts that exist."""
        self.builds: dict[str, Any] = {}
        """Id → `cloudbuild_v1.Build`, in the order of their creation."""
        self._steps = steps
        self._objects = BucketObjects(buckets)
        self._executions: dict[str, Execution] = {}
        self._queue: deque[Execution] = deque()
        self._changed = threading.Condition()
        self._held = False
        self._closed = False

    def __enter__(self) -> Self:
        super().__enter__()
        for number in range(2):
            threading.Thread(target=self._work, name=f"cloud-build-{number}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for execution in list(self._executions.values()):
            execution.cancel()
        super().__exit__()

    def hold(self) -> None:
        with self._changed:
            self._held = True

    def release(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    # Work.

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (self._held or not self._queue):
                    self._changed.wait(0.05)
                    self._expire()
                if self._closed:
                    return
                execution = self._queue.popleft()
            if execution.cancelled.is_set():
                execution.end(_Status.CANCELLED)
            else:
                execution.run()

    def _expire(self) -> None:
        for waiting in list(self._queue):
            if waiting.queued_too_long():
                self._queue.remove(waiting)
                waiting.end(_Status.EXPIRED)

    # Requests.

    def methods(self) -> Iterator[Method]:
        """Return what Kinetic calls."""
        api = cloudbuild_v1
        for name, asked, answer, serve in (
            ("CreateBuild", api.CreateBuildRequest, operations_pb2.Operation, self._create),
            ("GetBuild", api.GetBuildRequest, api.Build, self._get),
            ("CancelBuild", api.CancelBuildRequest, api.Build, self._cancel),
            ("ListBuilds", api.ListBuildsRequest, api.ListBuildsResponse, self._list),
        ):
            yield Method(f"{_SERVICE}/{name}", asked, answer, serve)

    def _create(self, request: Any, context: grpc.ServicerContext) -> Any:
        region = request.parent.rpartition("/")[2] or "global"
        self._check_place(request.project_id, region, context)
        build = request.build
        build_id = str(uuid.uuid4())
        variables = {"PROJECT_ID": self.project, "BUILD_ID": build_id, "LOCATION": region}
        problem = invalid(build, variables)
        if problem is not None:
            self.abort(context, grpc.StatusCode.INVALID_ARGUMENT, problem)
        account = build.service_account.rpartition("/")[2]
        if account and account not in self.accounts:
            self.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"generic::not_found: service account {account} does not exist or was deleted",
            )
        build.id, build.project_id = build_id, self.project
        build.name = f"projects/{self.project}/locations/{region}/builds/{build_id}"
        build.status, build.create_time = _Status.QUEUED, datetime.now(UTC)
        build.log_url = (
            f"https://console.cloud.google.com/cloud-build/builds;region={region}/{build_id}"
            f"?project={self.project}"
        )
        execution = Execution(
            build, self._steps, self._objects, self.secrets, {**variables, **build.substitutions}
        )
        with self._changed:
            self.builds[build_id] = build
            self._executions[build_id] = execution
            self._queue.append(execution)
            self._changed.notify()
        metadata = cloudbuild_v1.BuildOperationMetadata(build=build)
        return operations_pb2.Operation(name=build_id, metadata=packed(metadata))

    def _get(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._found(request, context).build

    def _cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        execution = self._found(request, context)
        execution.cancel()
        with self._changed:
            if execution in self._queue:
                self._queue.remove(execution)
                execution.end(_Status.CANCELLED)
        execution.over.wait(15)
        return execution.build

    def _list(self, request: Any, context: grpc.ServicerContext) -> Any:
        region = request.parent.rpartition("/")[2] or "global"
        self._check_place(request.project_id, region, context)
        found = [
            build
            for build in reversed(self.builds.values())
            if f"/locations/{region}/" in build.name
            and any(request.filter == f'tags="{tag}"' for tag in build.tags)
        ]
        return cloudbuild_v1.ListBuildsResponse(builds=found[: request.page_size])

    def _found(self, request: Any, context: grpc.ServicerContext) -> Execution:
        build_id = request.name.rpartition("/")[2] or request.id
        execution = self._executions.get(build_id)
        if execution is None:
            self.abort(
                context, grpc.StatusCode.NOT_FOUND, f"Requested entity was not found: {build_id}"
            )
        return execution

    def _check_place(self, project: str, region: str, context: grpc.ServicerContext) -> None:
        if project != self.project:
            self.abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                f"The caller does not have permission on the project {project}",
            )
        if region not in REGIONS:
            self.abort(
                context, grpc.StatusCode.INVALID_ARGUMENT, f'invalid location "{region}" for builds'
            )
