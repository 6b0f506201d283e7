"""An API server that stops for a while, and one that restarts without its earlier state."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bed import send

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect
from kinetic_k8s.cluster.watch import Watch, Watched

WATCHED = [Watched(kind="ConfigMap", labels="test=restart")]


def create(cluster: ApiServer, name: str) -> None:
    metadata = {"name": name, "labels": {"test": "restart"}}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def test_a_watch_and_a_call_survive_a_server_that_stops_and_one_that_forgets(
    bed: Any, second: dict[str, str]
) -> None:
    folder = Path(second["KUBE_BED_DIR"])
    cluster = connect(kubeconfig=second["KUBECONFIG"], namespace="default", limit=240)
    with Watch(cluster, WATCHED) as watch:
        watch.wait(60)
        create(cluster, "before")
        assert watch.wait(60)

        send(folder, "kube-apiserver", signal.SIGSTOP)
        resumed = later(2, lambda: send(folder, "kube-apiserver", signal.SIGCONT))
        create(cluster, "during")
        resumed()
        assert watch.wait(60)

        # The test bed starts an empty cluster then: every known version is one of the future.
        send(folder, "kube-apiserver", signal.SIGKILL)
        bed.start_beside(folder)
        assert cluster.get("ConfigMap", "during") is None
        watch.wait(60)
        create(cluster, "after")
        assert watch.wait(60)
        assert [
            each["metadata"]["name"] for each in cluster.list("ConfigMap", labels="test=restart")
        ] == ["after"]


def later(seconds: float, act: Callable[[], object]) -> Callable[[], None]:
    """Do it after some seconds; return what waits for that."""
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer.join
