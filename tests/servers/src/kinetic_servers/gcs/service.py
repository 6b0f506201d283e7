"""The JSON API: which operation a request is for, and who performs it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote

from kinetic_servers.gcs.access import Access, Tokens
from kinetic_servers.gcs.buckets import BucketCalls
from kinetic_servers.gcs.errors import INJECTED, TEXT, refusal
from kinetic_servers.gcs.fields import parse_fields, select
from kinetic_servers.gcs.identity import IdentityCalls
from kinetic_servers.gcs.objects import ObjectCalls
from kinetic_servers.gcs.resumable import ResumableCalls
from kinetic_servers.gcs.state import State
from kinetic_servers.gcs.uploads import UploadCalls
from kinetic_servers.http.messages import Answer, Call, RefusedError, Service, json_answer

# `B` and `O` stand for the names of a bucket and an object, `TB` and `TO` for those of a copy's target.
_ROUTES: Final = {
    ("GET", "b"): "buckets.list",
    ("POST", "b"): "buckets.insert",
    ("GET", "b/B"): "buckets.get",
    ("DELETE", "b/B"): "buckets.delete",
    ("PATCH", "b/B"): "buckets.patch",
    ("GET", "b/B/iam"): "buckets.getIamPolicy",
    ("PUT", "b/B/iam"): "buckets.setIamPolicy",
    ("GET", "b/B/iam/testPermissions"): "buckets.testIamPermissions",
    ("GET", "b/B/o"): "objects.list",
    ("POST", "b/B/o"): "objects.insert",
    ("PUT", "b/B/o"): "objects.insert",
    ("GET", "b/B/o/O"): "objects.get",
    ("PATCH", "b/B/o/O"): "objects.patch",
    ("DELETE", "b/B/o/O"): "objects.delete",
    ("POST", "b/B/o/O/rewriteTo/b/TB/o/TO"): "objects.rewrite",
}
_SHAPES: Final = [(method, shape.split("/"), name) for (method, shape), name in _ROUTES.items()]
_PREFIXES: Final = ("/storage/v1/", "/download/storage/v1/", "/upload/storage/v1/")


class GcsService(Service):
    """Performs calls on a state."""

    def __init__(self, state: State, tokens: Tokens | None) -> None:
        access = self._access = Access(state, tokens)
        buckets, objects = BucketCalls(state, access), ObjectCalls(state, access)
        uploads, resumable = UploadCalls(state, access), ResumableCalls(state, access)
        identity = IdentityCalls(tokens)
        self._performers: dict[str, Callable[[Call], Awaitable[Answer]]] = {
            "buckets.insert": buckets.insert,
            "buckets.list": buckets.list,
            "buckets.get": buckets.get,
            "buckets.delete": buckets.delete,
            "buckets.patch": buckets.patch,
            "buckets.getIamPolicy": buckets.get_policy,
            "buckets.setIamPolicy": buckets.set_policy,
            "buckets.testIamPermissions": buckets.test_permissions,
            "objects.list": objects.list,
            "objects.get": objects.get,
            "objects.get.media": objects.download,
            "objects.patch": objects.patch,
            "objects.delete": objects.delete,
            "objects.rewrite": objects.rewrite,
            "objects.insert": uploads.insert,
            "objects.insert.start": resumable.start,
            "objects.insert.chunk": resumable.chunk,
            "objects.insert.status": resumable.status,
            "token": identity.token,
            "metadata": identity.metadata,
        }

    def route(self, call: Call) -> None:
        """Find the operation, and the names in the path. An unknown request has the operation `unknown`."""
        call.operation, names = _route(call.method, call.path)
        call.bucket, call.name = names.get("B", ""), names.get("O", "")
        call.to_bucket, call.to_name = names.get("TB", ""), names.get("TO", "")
        if call.operation in ("objects.insert", "objects.get"):
            call.operation = _refined_operation(call)
        if call.operation.startswith("objects.insert") and not call.name:
            call.name = call.arg("name")

    async def perform(self, call: Call) -> Answer:
        performer = self._performers.get(call.operation)
        if performer is None:
            return Answer(404, b"Not Found", {"Content-Type": TEXT})
        if call.operation not in ("token", "metadata"):
            self._access.identify(call)
        self._access.permit(call)
        mask = parse_fields(call.arg("fields")) if call.arg("fields") else None
        answer = await performer(call)
        if mask is None or not isinstance(answer.body, bytes) or not answer.body.startswith(b"{"):
            return answer
        if call.operation == "objects.get.media" or answer.status != 200:
            return answer
        return json_answer(select(json.loads(answer.body), mask), headers=answer.headers)

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        return refusal(error, plain=call.operation == "objects.get.media")

    def injected(self, status: int, code: str) -> RefusedError:
        return INJECTED.get(status) or RefusedError(status, code or "backendError", "Backend Error")


def _route(method: str, path: str) -> tuple[str, dict[str, str]]:
    if method == "GET" and (path == "/" or path.startswith("/computeMetadata/v1/")):
        return "metadata", {}
    if (method, path) == ("POST", "/token"):
        return "token", {}
    prefix = next((each for each in _PREFIXES if path.startswith(each)), None)
    if prefix is None:
        return "unknown", {}
    parts = path.removeprefix(prefix).split("/")
    for wanted, shape, operation in _SHAPES:
        if wanted != method or len(shape) != len(parts):
            continue
        pairs = list(zip(shape, parts, strict=True))
        if all(key == part for key, part in pairs if not key.isupper()):
            names = {key: unquote(part, errors="strict") for key, part in pairs if key.isupper()}
            return operation, names
    return "unknown", {}


def _refined_operation(call: Call) -> str:
    """Return the operation that the query and the headers select."""
    uploads = call.path.startswith("/upload/")
    if call.operation == "objects.get":
        wanted = call.arg("alt") == "media" or call.path.startswith("/download/")
        return "objects.get.media" if wanted else "objects.get"
    if "upload_id" in call.query and uploads:
        if call.headers.get("content-range", "").replace(" ", "").startswith("bytes*/"):
            return "objects.insert.status"
        return "objects.insert.chunk"
    if not uploads or (call.method == "PUT" and call.arg("uploadType") != "media"):
        return "unknown"
    return "objects.insert.start" if call.arg("uploadType") == "resumable" else "objects.insert"
