"""How many requests the place of a job in a queue costs, as an administrator and with a role of one namespace."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access
from kinetic_k8s.cluster.queues import Queues
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.causes import QUEUE

KUEUE = "kueue.x-k8s.io/v1beta2"
EVERYWHERE = f"/apis/{KUEUE}"
TEAM = f"/apis/{KUEUE}/namespaces/team"
JOB: Manifest = {"metadata": {"name": "kn-train", "uid": "1", "labels": {QUEUE: "research"}}}
LOCAL_QUEUE = {
    "metadata": {"name": "research", "namespace": "team"},
    "spec": {"clusterQueue": "shared"},
}


def a_workload(*, admitted: bool) -> Manifest:
    state = str(admitted)
    return {
        "metadata": {
            "name": "job-kn-train",
            "namespace": "team",
            "uid": "2",
            "ownerReferences": [{"uid": "1"}],
        },
        "spec": {"queueName": "research"},
        "status": {
            "conditions": [
                {"type": each, "status": state} for each in ("QuotaReserved", "Admitted")
            ]
        },
    }


class Server(ThreadingHTTPServer):
    """An API server with one job in a queue of Kueue; it notes the paths of lists."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.workload = a_workload(admitted=False)
        self.forbidden: tuple[str, ...] = ()
        """How the paths end that the user may not read."""
        self.lists: list[str] = []

    def look(self, queues: Queues) -> tuple[Any, list[str]]:
        """Return the place of the job, and the lists that were sent for it."""
        access = Access(server=f"http://127.0.0.1:{self.server_port}", namespace="team")
        cluster = ApiServer(access, pause=lambda _: None)
        self.lists = []
        return queues.place(cluster, JOB), self.lists


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, body = 200, self._found(path)
        if path != "/apis":
            self.server.lists.append(path)
        if path.endswith(self.server.forbidden):
            message = 'User "ada" cannot list resource "workloads"'
            status, body = 403, {"kind": "Status", "reason": "Forbidden", "message": message}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _found(self, path: str) -> Manifest:
        if path == "/apis":
            return {"groups": [{"versions": [{"groupVersion": KUEUE}]}]}
        item = self.server.workload if path.endswith("workloads") else LOCAL_QUEUE
        return {"metadata": {}, "items": [item]}

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_user_who_may_read_all_namespaces_gets_the_exact_position(server: Server) -> None:
    place, lists = server.look(Queues())

    assert (place.position, place.complete) == (1, True)
    assert lists == [f"{EVERYWHERE}/workloads", f"{EVERYWHERE}/localqueues"]


def test_a_role_of_the_namespace_costs_one_extra_request_once(server: Server) -> None:
    server.forbidden = (f"{EVERYWHERE}/workloads", f"{EVERYWHERE}/localqueues")
    queues = Queues()
    own = [f"{TEAM}/workloads", f"{TEAM}/localqueues"]

    first, lists = server.look(queues)
    assert (first.position, first.complete) == (1, False)
    assert lists == [f"{EVERYWHERE}/workloads", *own]
    assert server.look(queues) == (first, own)
    assert server.look(Queues())[1] == lists, "another user may have another role"


def test_an_admitted_job_costs_one_request(server: Server) -> None:
    server.workload = a_workload(admitted=True)
    server.forbidden = (f"{EVERYWHERE}/workloads",)
    queues = Queues()
    server.look(queues)

    place, lists = server.look(queues)

    assert place.admitted
    assert lists == [f"{TEAM}/workloads"]


def test_a_user_who_may_read_nothing_costs_one_request(server: Server) -> None:
    server.forbidden = ("workloads",)
    queues = Queues()

    assert server.look(queues)[0] is None
    assert server.look(queues) == (None, [])
