"""Forward connections of this machine to a port of a job's leader, whichever pod that is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from kinetic_k8s.errors import ClusterUnreachableError, ObjectGoneError
from kinetic_k8s.reading.attempts import PodView, views
from kinetic_payload.errors import KineticError

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.port_stream import PortStream

_CHUNK: Final = 65536


def running_pod(pods: Iterable[PodView], host: int = 0) -> PodView | None:
    """Return the pod in which *host* runs now, by default the leader; None between two attempts."""
    # A container may run for a second before the kubelet reports it.
    on_node = [
        pod
        for pod in pods
        if pod.runs_function and pod.host == host and pod.node and pod.alive and not pod.leaving
    ]
    return max(on_node, key=lambda pod: (pod.restarts or 0, pod.created), default=None)


class PortForward:
    """Connects clients to ports on the loopback interface of the leader of the pods *labels*.

    The leader's pod is looked up for each client, so that after a preemption clients reach the next pod.
    """

    def __init__(self, cluster: ApiServer, labels: str) -> None:
        self._cluster = cluster
        self._labels = labels

    def serve(self, listener: socket.socket, port: int, report: Callable[[str], object]) -> None:
        """Connect each client of *listener* to *port*, until the listener is shut down.

        Each client is served in a thread of its own. A failure ends only its client's connection, and is
        passed to *report*.
        """
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve_client, args=(client, port, report), daemon=True
            ).start()

    def _serve_client(
        self, client: socket.socket, port: int, report: Callable[[str], object]
    ) -> None:
        with client:
            try:
                leader = running_pod(views(self._cluster.list("Pod", labels=self._labels)))
                if leader is None:
                    raise ObjectGoneError(
                        f"The connection to port {port} was closed: the job's leader does not run now."
                    )
                with closing(self._cluster.open_port(leader.name, port)) as stream:
                    sender = threading.Thread(target=_send, args=(client, stream), daemon=True)
                    sender.start()
                    _receive(client, stream)
            except KineticError as error:
                report(error.message)
            finally:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)


def _receive(client: socket.socket, stream: PortStream) -> None:
    """Pass on what the pod sends, until one side ends the connection."""
    try:
        while data := stream.receive():
            client.sendall(data)
    except OSError as error:
        # Errors of the cluster can be of this class, too; else the client has gone.
        if isinstance(error, KineticError):
            raise


def _send(client: socket.socket, stream: PortStream) -> None:
    """Pass on what the client sends, until one side ends the connection; then close *stream*.

    The protocol has no half-closed connections.
    """
    with closing(stream), suppress(OSError, ClusterUnreachableError):
        while data := client.recv(_CHUNK):
            stream.send(data)
