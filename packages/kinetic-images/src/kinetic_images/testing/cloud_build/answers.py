"""Responses of the Cloud Build API: operations of builds, and errors."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final, NoReturn

import grpc
from google.cloud.devtools import cloudbuild_v1
from google.longrunning import operations_pb2
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

_Status: Final = cloudbuild_v1.Build.Status
_CODES: Final = {
    _Status.FAILURE: grpc.StatusCode.INVALID_ARGUMENT,
    _Status.TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    _Status.CANCELLED: grpc.StatusCode.CANCELLED,
}


def operation_name(build: Any) -> str:
    """Return the name of the operation of *build*."""
    encoded = b64encode(build.id.encode()).decode()
    return f"operations/build/{build.project_id}/{encoded}"


def operation_of(build: Any, *, is_over: bool) -> Any:
    """Return the operation of *build*; *is_over*: with its result or error."""
    metadata = cloudbuild_v1.BuildOperationMetadata(build=build)
    operation = operations_pb2.Operation(
        name=operation_name(build),
        metadata=_packed(cloudbuild_v1.BuildOperationMetadata.pb(metadata)),
        done=is_over,
    )
    if is_over and build.status == _Status.SUCCESS:
        operation.response.CopyFrom(_packed(cloudbuild_v1.Build.pb(build)))
    elif is_over:
        code = _CODES.get(build.status, grpc.StatusCode.INTERNAL)
        message = f"Build failed; {build.status.name}"
        operation.error.CopyFrom(status_pb2.Status(code=code.value[0], message=message))
    return operation


def abort(
    context: grpc.ServicerContext, code: grpc.StatusCode, message: str, reason: str = ""
) -> NoReturn:
    """End the call with an error as the real API sends it, with its *reason* in an `ErrorInfo`."""
    details = []
    if reason:
        info = error_details_pb2.ErrorInfo(
            reason=reason,
            domain="googleapis.com",
            metadata={"service": "cloudbuild.googleapis.com"},
        )
        details.append(_packed(info))
    status = status_pb2.Status(code=code.value[0], message=message, details=details)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("unreachable: `abort_with_status` raises")


def _packed(message: Any) -> Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
