"""The Cloud Build API as a gRPC server: builds, their operations, the queue, and faults."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, Self

import grpc
from google.cloud.devtools import cloudbuild_v1
from google.longrunning import operations_pb2

from kinetic_images.testing.cloud_build.answers import abort, operation_name, operation_of
from kinetic_images.testing.cloud_build.bucket_objects import BucketObjects
from kinetic_images.testing.cloud_build.execution import Execution, queued_too_long
from kinetic_images.testing.cloud_build.steps import Steps
from kinetic_images.testing.cloud_build.validation import REGIONS, invalid

_SERVICE: Final = "google.devtools.cloudbuild.v1.CloudBuild"
_OPERATIONS: Final = "google.longrunning.Operations"
_Status: Final = cloudbuild_v1.Build.Status


@dataclass
class _Fault:
    method: str
    code: grpc.StatusCode
    message: str
    reason: str
    times: int
    after: bool


@dataclass(frozen=True)
class _Queued:
    execution: Execution
    began: float


class CloudBuildServer:
    """Cloud Build for one project. Use it in a `with` block.

    *buckets* is the address of the bucket server (`http://HOST:PORT`), *steps* runs the steps. At most
    *concurrency* builds run at once; others wait. *credentials* make it serve TLS; without them, clients
    connect without encryption and login.
    """

    def __init__(
        self,
        buckets: str,
        steps: Steps,
        *,
        project: str = "test-project",
        concurrency: int = 2,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.project = project
        self.secrets: dict[str, str] = {}
        """Secret Manager: `projects/P/secrets/S/versions/V` → value."""
        self.accounts: set[str] = set()
        """The e-mail addresses of the service accounts that exist."""
        self.builds: dict[str, Any] = {}
        """Id → `cloudbuild_v1.Build`, in the order of their creation."""
        self.requests: list[str] = []
        """The methods that were called, in order."""
        self.endpoint = ""
        """`http://HOST:PORT` without TLS, `HOST:PORT` with it; once it runs."""
        self._steps = steps
        self._objects = BucketObjects(buckets)
        self._credentials = credentials
        self._executions: dict[str, Execution] = {}
        self._queue: deque[_Queued] = deque()
        self._changed = threading.Condition()
        self._concurrency = concurrency
        self._held = False
        self._closed = False
        self._faults: list[_Fault] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        # The pool has more threads than the tests have clients.
        server = grpc.server(ThreadPoolExecutor(max_workers=16))
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(_SERVICE, dict(self._handlers())),
                grpc.method_handlers_generic_handler(
                    _OPERATIONS,
                    {
                        "GetOperation": grpc.unary_unary_rpc_method_handler(
                            self._guarded("GetOperation", self._get_operation),
                            request_deserializer=operations_pb2.GetOperationRequest.FromString,
                            response_serializer=operations_pb2.Operation.SerializeToString,
                        )
                    },
                ),
            )
        )
        if self._credentials is None:
            self.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        else:
            port = server.add_secure_port("127.0.0.1:0", self._credentials)
            self.endpoint = f"localhost:{port}"
        server.start()
        self._running.callback(lambda: server.stop(grace=None).wait())
        for number in range(self._concurrency):
            threading.Thread(target=self._work, name=f"cloud-build-{number}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for execution in list(self._executions.values()):
            execution.cancel()
        self._running.close()

    def fail(
        self,
        method: str,
        code: grpc.StatusCode,
        message: str = "injected",
        *,
        reason: str = "",
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the next requests of *method* fail, such as `CreateBuild`.

        *reason* is that of an `ErrorInfo`. *after*: the request has its effect, and only its response is lost.
        """
        with self._changed:
            self._faults.append(_Fault(method, code, message, reason, times, after))

    def hold(self) -> None:
        """Start no builds: they wait in the queue."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Start builds again."""
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
                execution = self._queue.popleft().execution
            if execution.cancelled.is_set():
                execution.end_unstarted(_Status.CANCELLED)
            else:
                execution.run()

    def _expire(self) -> None:
        for waiting in list(self._queue):
            if queued_too_long(waiting.execution.build, waiting.began):
                self._queue.remove(waiting)
                waiting.execution.end_unstarted(_Status.EXPIRED)

    # Requests.

    def _handlers(self) -> Iterator[tuple[str, grpc.RpcMethodHandler]]:
        api = cloudbuild_v1
        for name, asked, answer, serve in (
            ("GetBuild", api.GetBuildRequest, api.Build, self._get),
            ("CancelBuild", api.CancelBuildRequest, api.Build, self._cancel),
            ("ListBuilds", api.ListBuildsRequest, api.ListBuildsResponse, self._list),
        ):
            yield (
                name,
                grpc.unary_unary_rpc_method_handler(
                    self._guarded(name, serve),
                    request_deserializer=asked.deserialize,
                    response_serializer=answer.serialize,
                ),
            )
        yield (
            "CreateBuild",
            grpc.unary_unary_rpc_method_handler(
                self._guarded("CreateBuild", self._create),
                request_deserializer=api.CreateBuildRequest.deserialize,
                response_serializer=operations_pb2.Operation.SerializeToString,
            ),
        )

    def _guarded(
        self, method: str, serve: Callable[[Any, grpc.ServicerContext], Any]
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Return a handler that notes the request, and fails where a fault says so."""

        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            with self._changed:
                self.requests.append(method)
                fault = next((each for each in self._faults if each.method == method), None)
                if fault is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
            answer = serve(request, context) if fault is None or fault.after else None
            if fault is not None:
                abort(context, fault.code, fault.message, fault.reason)
            return answer

        return handle

    def _create(self, request: Any, context: grpc.ServicerContext) -> Any:
        region = request.parent.rpartition("/")[2] or "global"
        self._check_place(request.project_id, region, context)
        build = request.build
        build_id = str(uuid.uuid4())
        variables = {"PROJECT_ID": self.project, "BUILD_ID": build_id, "LOCATION": region}
        problem = invalid(build, variables)
        if problem is not None:
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, problem)
        account = build.service_account.rpartition("/")[2]
        if account and account not in self.accounts:
            abort(
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
            self._queue.append(_Queued(execution, monotonic()))
            self._changed.notify()
        return self._operation(build)

    def _get(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._found(request, context).build

    def _cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        execution = self._found(request, context)
        if execution.over.is_set():
            abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"build {execution.build.id} has already finished",
            )
        execution.cancel()
        with self._changed:
            for waiting in list(self._queue):
                if waiting.execution is execution:
                    self._queue.remove(waiting)
                    execution.end_unstarted(_Status.CANCELLED)
        execution.over.wait(15)
        return execution.build

    def _list(self, request: Any, context: grpc.ServicerContext) -> Any:
        region = request.parent.rpartition("/")[2] or "global"
        self._check_place(request.project_id, region, context)
        wanted = request.filter.replace(" ", "").replace('"', "")
        name, _, tag = wanted.partition("=")
        if wanted and name != "tags":
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"invalid filter: {request.filter}")
        found = [
            build
            for build in reversed(self.builds.values())
            if f"/locations/{region}/" in build.name and (not tag or tag in build.tags)
        ]
        return cloudbuild_v1.ListBuildsResponse(builds=found[: request.page_size or 50])

    def _get_operation(self, request: Any, context: grpc.ServicerContext) -> Any:
        for build in self.builds.values():
            if operation_name(build) == request.name:
                return self._operation(build)
        return abort(context, grpc.StatusCode.NOT_FOUND, f"not found: {request.name}")

    def _operation(self, build: Any) -> Any:
        return operation_of(build, is_over=self._executions[build.id].over.is_set())

    def _found(self, request: Any, context: grpc.ServicerContext) -> Execution:
        build_id = request.name.rpartition("/")[2] or request.id
        execution = self._executions.get(build_id)
        if execution is None:
            abort(context, grpc.StatusCode.NOT_FOUND, f"Requested entity was not found: {build_id}")
        return execution

    def _check_place(self, project: str, region: str, context: grpc.ServicerContext) -> None:
        if project != self.project:
            abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                f"The caller does not have permission on the project {project}",
            )
        if region not in REGIONS:
            abort(
                context, grpc.StatusCode.INVALID_ARGUMENT, f'invalid location "{region}" for builds'
            )
