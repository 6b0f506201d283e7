"""The API server over HTTP: the only module that sends requests to it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

from kinetic_k8s.cluster.connection import Access, Connection
from kinetic_k8s.cluster.execute import PROTOCOL, Execution
from kinetic_k8s.cluster.port_stream import PORT_PROTOCOL, PortStream, open_websocket
from kinetic_k8s.cluster.resources import kind_of
from kinetic_k8s.cluster.streams import Events, Lines
from kinetic_k8s.cluster.translation import Identity, Refusal, Request, error_of
from kinetic_k8s.errors import ClusterError, ClusterUnreachableError
from kinetic_k8s.manifests import Manifest
from kinetic_payload.backoff import Backoff
from kinetic_payload.http.retry import retry_after
from kinetic_payload.http.session import cause_text, is_untrusted

if TYPE_CHECKING:
    import socket

    from websocket import WebSocket

Propagation = Literal["Background", "Foreground"]
Merge = Literal["strategic", "plain"]

LIMIT: Final = 60.0
"""The time limit of a call in seconds, retries included."""
CONNECT_LIMIT: Final = 10.0
SILENCE_LIMIT: Final = 30.0
"""The longest time without a byte of the response to a call, in seconds."""
STREAM_SILENCE_LIMIT: Final = 150.0
"""The longest time without a byte of a watch, in seconds: the server sends a bookmark every minute."""
PAGE: Final = 500
"""Objects in one page of a list."""
FIELD_MANAGER: Final = "kinetic"
"""Who set the fields of `ApiServer.apply`, as the server records it."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_RBAC_LOAD_SECONDS: Final = 0.5
"""Seconds for which an API server that has just started may reject permitted requests."""
SETTLING: Final = 10.0
"""Seconds for which a rejection (403, 404 of a kind) is retried if the same request was accepted before."""
_ASK_AGAIN: Final = 60.0
"""Seconds after which the server is asked again for a kind that it did not serve: it may be installed meanwhile."""
_LARGEST_MESSAGE: Final = 65536


class ApiServer:
    """One namespace of the cluster at the API server of *access*. Manifests in, manifests out. Threads can share it.

    All errors are of the class `ClusterError`. Every method that sends a request can raise
    `ClusterUnreachableError`, `NotAuthenticatedError` and `NotPermittedError`, besides the errors that it
    lists.
    """

    def __init__(
        self,
        access: Access,
        *,
        limit: float = LIMIT,
        page: int = PAGE,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._access = access
        self._limit = limit
        self._page = page
        self._clock = clock
        self._pause = pause or threading.Event().wait
        self._connection = connection or Connection(access)

    @property
    def identity(self) -> Identity:
        """The identity of this cluster and namespace."""
        access = self._access
        return Identity(
            server=self._connection.server,
            namespace=access.namespace,
            context=access.context,
            title=access.title,
        )

    def now(self) -> datetime:
        """Return the time by the clock of the server, as its responses showed it; this sends no request.

        Before the first response, that is the time of this machine.
        """
        return datetime.now(UTC) + timedelta(seconds=self._connection.clock.ahead or 0.0)

    def within(self, seconds: float) -> Self:
        """Return the same cluster with a time limit of *seconds* for each call, retries included."""
        return type(self)(
            self._access,
            limit=seconds,
            page=self._page,
            clock=self._clock,
            pause=self._pause,
            connection=self._connection,
        )

    def in_namespace(self, namespace: str) -> Self:
        """Return the same cluster with another namespace."""
        return type(self)(
            replace(self._access, namespace=namespace),
            limit=self._limit,
            page=self._page,
            clock=self._clock,
            pause=self._pause,
            connection=self._connection,
        )

    def serves(self, kind: str) -> bool:
        """Return whether the cluster serves *kind*, such as `JobSet`.

        The first call asks the cluster; later calls return what it answered then. A kind that it did not
        serve is asked for again, at most once a minute.
        """
        found = kind_of(kind)
        if "/" not in found.api:
            return True
        served = self._connection.served
        if served is None or (
            found.api not in served and self._clock() >= self._connection.ask_again_at
        ):
            request = Request(verb="list", resource="apis", kind="API", path="/apis")
            answer = self._send("GET", request)
            if answer.refusal is not None:
                raise error_of(answer.refusal, request, self.identity)
            groups = answer.manifest().get("groups")
            if not isinstance(groups, list):
                raise ClusterError(f"Could not {request} in {self.identity}: it is no API server.")
            served = frozenset(
                version["groupVersion"] for group in groups for version in group["versions"]
            )
            self._connection.served = served
            self._connection.ask_again_at = self._clock() + _ASK_AGAIN
        return found.api in served

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object; return it as the server completed it.

        A lost response is not an error: if the object that was sent exists, it is returned.

        Raises:
            AlreadyExistsError: Another object of that name exists.
            InvalidManifestError: The manifest has an unknown field, or a value that is not accepted.
            RefusedError: A quota or a policy of the cluster refused it.
            NamespaceNotFoundError: The namespace does not exist.
        """
        request = self._request("create", manifest["kind"])
        request = replace(request, name=manifest["metadata"].get("name", ""))
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        answer = self._send("POST", request, query, body=manifest)
        if answer.refusal is None:
            return answer.manifest()
        if answer.refusal.reason == "AlreadyExists" and answer.repeated:
            # An earlier try of this request may have succeeded although its response was lost.
            found = self.get(request.kind, request.name)
            if found is not None and _covers(found["metadata"], manifest["metadata"]):
                return found
        raise error_of(answer.refusal, request, self.identity)

    def apply(self, manifest: Manifest, *, force: bool = False, dry_run: bool = False) -> Manifest:
        """Create an object, or change its fields that Kinetic sets; return it as the server completed it.

        This is Kubernetes' server-side apply: fields that *manifest* does not have, and that others set, are
        kept; those that an earlier manifest had are removed. A namespace in *manifest* comes before that of
        the cluster.

        Args:
            manifest: The fields that Kinetic sets.
            force: Also change fields that others set.
            dry_run: Change nothing.

        Raises:
            ConflictError: Another field manager set a field to another value; the message names both.
            InvalidManifestError: The manifest has an unknown field, or a value that is not accepted.
            RefusedError: A quota or a policy of the cluster refused it.
            NamespaceNotFoundError: The namespace does not exist.
            KindNotServedError: The cluster does not serve that kind of object.
        """
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", self._access.namespace)
        if namespace != self._access.namespace:
            return self.in_namespace(namespace).apply(manifest, force=force, dry_run=dry_run)
        request = self._request("patch", manifest["kind"], metadata["name"])
        query = {
            "fieldManager": FIELD_MANAGER,
            "fieldValidation": "Strict",
            **({"force": "true"} if force else {}),
            **({"dryRun": "All"} if dry_run else {}),
        }
        answer = self._send("PATCH", request, query, body=manifest, content_type=_APPLY)
        if answer.refusal is not None:
            raise error_of(answer.refusal, request, self.identity)
        return answer.manifest()

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        """Return an object, or None if it does not exist; *brief*: its metadata only."""
        request = self._request("get", kind, name)
        answer = self._send("GET", request, brief=brief)
        return self._manifest_or_none(answer, request)

    def list(
        self, kind: str, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> list[Manifest]:
        """Return the objects that match the selectors; *everywhere*: of all namespaces."""
        request = self._request("list", kind, everywhere=everywhere)
        query = {**_selectors(labels, fields), "limit": str(self._page)}
        deadline = self._clock() + self._limit
        items: list[Manifest] = []
        page = ""
        while True:
            more = {"continue": page} if page else {}
            answer = self._send("GET", request, query | more, deadline=deadline)
            if answer.status == 410 and page:
                # The next page has expired: list again from the start.
                items, page = [], ""
                continue
            if answer.refusal is not None:
                raise error_of(answer.refusal, request, self.identity)
            result = answer.manifest()
            items += result.get("items") or []
            page = result["metadata"].get("continue") or ""
            if not page:
                break
        for item in items:  # Items of a list do not name their kind.
            item.setdefault("apiVersion", kind_of(kind).api)
            item.setdefault("kind", kind)
        return items

    def patch(
        self,
        kind: str,
        name: str,
        change: Manifest,
        *,
        merge: Merge = "strategic",
        brief: bool = False,
        dry_run: bool = False,
    ) -> Manifest | None:
        """Change an object; return its new state, or None if it does not exist.

        With *brief*, return its metadata only; with *dry_run*, change nothing.

        Raises:
            ConflictError: *change* names a resource version that is no longer the object's.
            InvalidManifestError: The change is not accepted.
        """
        request = self._request("patch", kind, name)
        answer = self._send(
            "PATCH",
            request,
            {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})},
            body=change,
            content_type=_MERGE[merge],
            brief=brief,
        )
        return self._manifest_or_none(answer, request)

    def delete(
        self,
        kind: str,
        name: str,
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: Propagation = "Background",
        dry_run: bool = False,
    ) -> bool:
        """Delete an object; return whether it existed. Its pods may run until their grace period ends.

        Args:
            kind: Such as `Job`.
            name: The object's name.
            uid: Delete only the object with this uid, not a later one of the same name.
            grace: Seconds between SIGTERM and SIGKILL, for a pod; None: the pod's own setting.
            propagation: Whether and when the objects that it owns are deleted.
            dry_run: Only find out whether the server would do it.

        Raises:
            ConflictError: The object has another *uid*.
        """
        request = self._request("delete", kind, name)
        body: Manifest = {"propagationPolicy": propagation}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if dry_run:
            body["dryRun"] = ["All"]
        # What is on the way may drop the body of a DELETE.
        query = {"dryRun": "All"} if dry_run else {}
        answer = self._send("DELETE", request, query, body=body)
        # If the object is absent after a retry, an earlier try may have deleted it.
        return self._manifest_or_none(answer, request) is not None or answer.repeated

    @contextmanager
    def watch(
        self,
        kind: str,
        *,
        labels: str = "",
        fields: str = "",
        marked: bool = True,
        seconds: int = 600,
    ) -> Iterator[Events]:
        """Open one watch request. It begins with an ADDED event for each object that exists.

        Args:
            kind: Such as `Pod`.
            labels: Label selector.
            fields: Field selector.
            marked: Whether a bookmark with the annotation `k8s.io/initial-events-end` follows these
                first events.
            seconds: The server ends the request after this time.

        Raises:
            InvalidManifestError: The server does not support *marked*, as before Kubernetes 1.34.
        """
        request = self._request("watch", kind)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            **_selectors(labels, fields),
        }
        if marked:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        with self._stream(request, query) as response:
            yield Events(Lines(response, request, self.identity))

    @contextmanager
    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: str | None = None,
        tail: int | None = None,
    ) -> Iterator[Lines]:
        """Open one log request; each line begins with its timestamp and a space.

        Args:
            pod: The pod's name.
            container: The container's name.
            follow: Continue until the container ends.
            since: Begin at this time, as in RFC 3339; the server cuts it to whole seconds.
            tail: Return only so many lines from the end.

        Raises:
            LogNotReadyError: The container has not started yet.
            ObjectGoneError: The pod does not exist.
        """
        request = self._request("get", "Pod", pod)
        request = replace(request, resource="pods/log", path=f"{request.path}/log")
        query = {"container": container, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if since is not None:
            query["sinceTime"] = since
        if tail is not None:
            query["tailLines"] = str(tail)
        # A program may print nothing for hours, and a log has no bookmarks.
        silence = None if follow else SILENCE_LIMIT
        with self._stream(request, query, silence=silence) as response:
            yield Lines(response, request, self.identity)

    def open_port(self, pod: str, port: int) -> PortStream:
        """Connect to *port* on the loopback interface of a pod.

        Whether anything listens there shows only in `PortStream.receive`.

        Raises:
            ObjectGoneError: The pod does not exist.
        """
        request = self._request("get", "Pod", pod)
        path = f"{request.path}/portforward?ports={port}"
        request = replace(
            request, resource="pods/portforward", kind=f"port {port} of Pod", path=path
        )
        return PortStream(*self._websocket(request, PORT_PROTOCOL), request, self.identity)

    def execute(
        self, pod: str, container: str, command: Sequence[str], *, terminal: bool
    ) -> Execution:
        """Start *command* in a container of a pod, with a *terminal* or with separate streams.

        Raises:
            ObjectGoneError: The pod does not exist.
        """
        request = self._request("get", "Pod", pod)
        streams = {"stdin": True, "stdout": True, "stderr": not terminal, "tty": terminal}
        query = [
            ("container", container),
            *((name, str(wanted).lower()) for name, wanted in streams.items()),
            *(("command", word) for word in command),
        ]
        path = f"{request.path}/exec?{urlencode(query)}"
        request = replace(request, resource="pods/exec", kind="an exec of Pod", path=path)
        return Execution(*self._websocket(request, PROTOCOL), request, self.identity)

    def _websocket(self, request: Request, protocol: str) -> tuple[WebSocket, socket.socket]:
        limit = min(CONNECT_LIMIT, self._limit)
        for last in (False, True):
            opened = self._connection.opened()
            answer = open_websocket(opened, request, self.identity, protocol=protocol, limit=limit)
            if not isinstance(answer, Refusal):
                return answer
            if answer.status != 401 or last:
                raise error_of(answer, request, self.identity)
            self._connection.renew(opened)
        raise AssertionError

    def _request(
        self, verb: str, kind: str, name: str = "", *, everywhere: bool = False
    ) -> Request:
        found = kind_of(kind)
        namespace = self._access.namespace if found.namespaced and not everywhere else ""
        within = ["namespaces", quote(namespace, safe="")] if namespace else []
        parts = [found.root, *within, found.plural]
        return Request(
            verb=verb,
            resource=found.in_roles,
            kind=kind,
            path="/".join([*parts, quote(name, safe="")] if name else parts),
            name=name,
            namespace=namespace,
            everywhere=everywhere,
        )

    def _manifest_or_none(self, answer: _Answer, request: Request) -> Manifest | None:
        if answer.refusal is None:
            return answer.manifest()
        if answer.refusal.absent:
            return None
        raise error_of(answer.refusal, request, self.identity)

    def _send(
        self,
        method: str,
        request: Request,
        query: Mapping[str, str] | None = None,
        *,
        body: Manifest | None = None,
        content_type: str = "application/json",
        brief: bool = False,
        deadline: float | None = None,
    ) -> _Answer:
        """Send a request; retry after transient failures until the time limit."""
        deadline = self._clock() + self._limit if deadline is None else deadline
        url = f"{request.path}?{urlencode(query)}" if query else request.path
        headers = {"Accept": _BRIEF if brief else "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        backoff, rejections = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), 0
        repeated = renewed = False
        cause: HTTPError | None
        while True:
            left = max(deadline - self._clock(), 0.1)
            opened = self._connection.opened()
            sent = time.time()
            asked = 0.0
            try:
                response = opened.request(
                    method,
                    url,
                    body=None if body is None else json.dumps(body).encode(),
                    headers=headers,
                    timeout=urllib3.Timeout(
                        connect=min(CONNECT_LIMIT, left), read=min(SILENCE_LIMIT, left)
                    ),
                )
                status, data = response.status, response.data
                self._connection.clock.note(response.headers.get("Date"), sent, time.time())
            except HTTPError as error:
                if is_untrusted(error):
                    raise self._no_connection(request, error) from error
                problem, cause = cause_text(error), error
            else:
                refusal = Refusal.of(status, data) if status >= 400 else None
                answer = _Answer(status, data, refusal, repeated=repeated)
                if status == 401 and not renewed:
                    renewed = True
                    self._connection.renew(opened)
                    continue
                if refusal is None or refusal.absent:
                    self._connection.permitted.add(request.right)
                    return answer
                if refusal.rejection and rejections < self._retries_of_rejection(status, request):
                    rejections += 1
                    self._pause(min(_RBAC_LOAD_SECONDS, left))
                    continue
                if not refusal.transient:
                    return answer
                problem, cause = f"{refusal.text} ({status})", None
                asked = retry_after(response.headers)
            repeated = True
            wait = max(backoff.next(), asked)
            if self._clock() + wait >= deadline:
                raise ClusterUnreachableError(
                    f"Could not {request} in {self.identity}: no usable response in {self._limit:g} s. "
                    f"The last problem was: {problem}.",
                    hint=_CHECK_NETWORK,
                ) from cause
            self._pause(wait)

    def _retries_of_rejection(self, status: int, request: Request) -> int:
        """Return how often a rejected request is retried, `_RBAC_LOAD_SECONDS` apart."""
        if request.right not in self._connection.permitted:
            # Many users may list the objects of their own namespace only, so this rejection is final.
            return 1 if status == 403 and not request.everywhere else 0
        return int(min(SETTLING, self._limit) / _RBAC_LOAD_SECONDS)

    @contextmanager
    def _stream(
        self,
        request: Request,
        query: Mapping[str, str],
        *,
        silence: float | None = STREAM_SILENCE_LIMIT,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open a streaming response; retry only with new credentials."""
        renewed = False
        while True:
            opened = self._connection.opened()
            try:
                response = opened.request(
                    "GET",
                    f"{request.path}?{urlencode(query)}",
                    timeout=urllib3.Timeout(connect=min(CONNECT_LIMIT, self._limit), read=silence),
                    stream=True,
                )
                if response.status < 400:
                    break
                with response:
                    refusal = Refusal.of(response.status, response.read(_LARGEST_MESSAGE))
            except HTTPError as error:
                raise self._no_connection(request, error) from error
            if refusal.status != 401 or renewed:
                raise error_of(
                    refusal, request, self.identity, retry_after=retry_after(response.headers)
                )
            renewed = True
            self._connection.renew(opened)
        try:
            yield response
        finally:
            response.close()

    def _no_connection(self, request: Request, error: HTTPError) -> ClusterUnreachableError:
        """Return the error for a single try that failed with *error*."""
        hint = _CHECK_NETWORK
        if is_untrusted(error):
            hint = "Check the certificate authority in the kubeconfig, and whether a proxy intercepts TLS."
        return ClusterUnreachableError(
            f"Could not {request} in {self.identity}: {cause_text(error)}.", hint=hint
        )


_CHECK_NETWORK: Final = "Check the network, a VPN or proxy, and whether the cluster still exists."
_BRIEF: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = {
    "strategic": "application/strategic-merge-patch+json",
    "plain": "application/merge-patch+json",
}


@dataclass(frozen=True)
class _Answer:
    status: int
    data: bytes
    refusal: Refusal | None
    repeated: bool = False
    """Whether the request was sent before, and that try may have succeeded without a usable response."""

    def manifest(self) -> Manifest:
        try:
            found: Any = json.loads(self.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterError(
                "The address of the cluster responded with something other than JSON.",
                hint="Log in to the network, or check the address.",
            )
        return found


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {
        **({"labelSelector": labels} if labels else {}),
        **({"fieldSelector": fields} if fields else {}),
    }


def _covers(found: Manifest, sent: Manifest) -> bool:
    """Return whether the metadata *found* belongs to the object that was created from *sent*."""
    owners = {each["uid"] for each in found.get("ownerReferences") or ()}
    return (
        all(
            (found.get(part) or {}).get(key) == value
            for part in ("labels", "annotations")
            for key, value in (sent.get(part) or {}).items()
        )
        and {each["uid"] for each in sent.get("ownerReferences") or ()} <= owners
    )
