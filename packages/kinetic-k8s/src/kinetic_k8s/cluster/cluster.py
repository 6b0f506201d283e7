"""The `Cluster` protocol: the operations that Kinetic needs. Manifests in, manifests out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, Self

from kinetic_k8s.manifests import Manifest

Propagation = Literal["Background", "Foreground", "Orphan"]
Merge = Literal["strategic", "plain"]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a cluster and namespace, for messages and records."""

    server: str
    namespace: str
    context: str | None = None
    """The context of the kubeconfig, if the cluster was found by one."""
    title: str = ""
    """The name of the cluster for messages, if it was found in another way."""

    def __str__(self) -> str:
        server = f"{self.title} ({self.server})" if self.title else self.server
        where = f"namespace {self.namespace!r} of {server}"
        return where if self.context is None else f"{where} (context {self.context!r})"


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """A change that a watch reports."""

    type: str
    """`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`; an event `ERROR` is raised as an exception."""
    object: Manifest


class Stream(Protocol):
    """A streaming response: it continues until the server or `close` ends it."""

    def close(self) -> None:
        """End the stream at once, from any thread; its reader's iteration ends."""
        ...


class EventStream(Stream, Protocol):
    """The events of one watch request."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """Iterate until the stream ends.

        Raises:
            ClusterError: The stream broke, or its resource version is gone.
        """
        ...


class LineStream(Stream, Protocol):
    """The lines of one log request, without line breaks."""

    def __iter__(self) -> Iterator[str]:
        """Iterate until the stream ends.

        Raises:
            ClusterUnreachableError: The stream broke.
        """
        ...


class ByteStream(Protocol):
    """A connection to a port of a pod. One thread may send while another one receives."""

    def send(self, data: bytes) -> None:
        """Send *data*.

        Raises:
            ClusterUnreachableError: The connection is broken.
        """
        ...

    def receive(self) -> bytes:
        """Return the next bytes, at least one; none at the end of the connection.

        Raises:
            PortRefusedError: Nothing listens on the port.
            ClusterUnreachableError: The connection broke.
        """
        ...

    def close(self) -> None:
        """End the connection at once, from any thread; `receive` returns no bytes from now on."""
        ...


class Cluster(Protocol):
    """One namespace of a cluster. It can be used from several threads.

    All errors are of the class `ClusterError`. Every method that sends a request can raise
    `ClusterUnreachableError`, `NotAuthenticatedError` and `NotPermittedError`, besides the errors that it
    lists.
    """

    @property
    def identity(self) -> Identity:
        """The identity of this cluster and namespace."""
        ...

    def now(self) -> datetime:
        """Return the time by the clock of the server, as its latest response showed it; this sends no request.

        Before the first response, that is the time of this machine.
        """
        ...

    def within(self, seconds: float) -> Self:
        """Return the same cluster with a time limit of *seconds* for each call, retries included."""
        ...

    def in_namespace(self, namespace: str) -> Self:
        """Return another namespace of the same cluster."""
        ...

    def serves(self, kind: str) -> bool:
        """Return whether the cluster serves *kind*, such as `JobSet`.

        The first call asks the cluster; later calls return what it answered then. A kind that it did not
        serve is asked for again, at most once a minute.
        """
        ...

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object; return it as the server completed it.

        A lost response is not an error: if the object that was sent exists, it is returned.

        Raises:
            AlreadyExistsError: Another object of that name exists.
            InvalidManifestError: The manifest has an unknown field, or a value that is not accepted.
            RefusedError: A quota or a policy of the cluster refused it.
            NamespaceNotFoundError: The namespace does not exist.
        """
        ...

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        """Return an object, or None if it does not exist; *brief*: its metadata only."""
        ...

    def list(
        self, kind: str, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> list[Manifest]:
        """Return the objects that match the selectors; *everywhere*: of all namespaces."""
        ...

    def patch(
        self,
        kind: str,
        name: str,
        change: Manifest,
        *,
        merge: Merge = "strategic",
        brief: bool = False,
    ) -> Manifest | None:
        """Change an object; return its new state, or None if it does not exist.

        With *brief*, return its metadata only.

        Raises:
            ConflictError: *change* names a resource version that is no longer the object's.
            InvalidManifestError: The change is not accepted.
        """
        ...

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
        ...

    def watch(
        self,
        kind: str,
        *,
        labels: str = "",
        fields: str = "",
        marked: bool = True,
        seconds: int = 600,
    ) -> AbstractContextManager[EventStream]:
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
        ...

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: str | None = None,
        tail: int | None = None,
    ) -> AbstractContextManager[LineStream]:
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
        ...

    def open_port(self, pod: str, port: int) -> ByteStream:
        """Connect to *port* on the loopback interface of a pod.

        Whether anything listens there shows only in `ByteStream.receive`.

        Raises:
            ObjectGoneError: The pod does not exist.
        """
        ...
