"""Watches and logs whose connections break, expire or are rejected."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.cluster.creation import create_workload
from kinetic_k8s.cluster.logs import PodLog
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import NotAuthenticatedError
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job


@pytest.fixture
def own() -> str:
    """A name and a label's value of this test's own."""
    return f"watched-{secrets.token_hex(4)}"


def watched(own: str) -> list[Watched]:
    return [Watched(kind="ConfigMap", labels=f"test={own}")]


def a_map(own: str, end: str = "") -> dict[str, Any]:
    metadata = {"name": f"{own}{end}", "labels": {"test": own}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def test_every_change_ends_a_wait(cluster: ApiServer, own: str) -> None:
    with Watch(cluster, watched(own)) as watch:
        assert watch.wait(60), "what there is at the beginning is news"
        cluster.create(a_map(own))
        assert watch.wait(60)
        cluster.patch("ConfigMap", own, {"data": {"a": "1"}})
        assert watch.wait(60)
        cluster.delete("ConfigMap", own)
        assert watch.wait(60)
        cluster.create({**a_map(own), "metadata": {"name": f"{own}-other"}})
        assert not watch.wait(0.5), "nothing that matches has changed"


def test_a_wait_ends_at_once_when_another_thread_wakes_or_closes_it(
    cluster: ApiServer, own: str
) -> None:
    with Watch(cluster, watched(own)) as watch:
        watch.wait(60)
        watch.wake()
        assert watch.wait(None), "a wake that comes before the wait is not lost"
        for end in (watch.wake, watch.close):
            threading.Timer(0.2, end).start()
            assert watch.wait(None)
        assert watch.wait(None), "nothing will change any more"


def test_threads_end_with_the_watch(cluster: ApiServer, own: str) -> None:
    with Watch(cluster, watched(own)) as watch:
        watch.wait(60)
        ours = [each for each in threading.enumerate() if each.name == "kinetic-watch"]
    for each in ours:
        each.join(60)

    assert ours
    assert not any(each.is_alive() for each in ours)


@pytest.mark.parametrize("down", [False, True])
def test_a_change_while_the_connection_is_broken_is_not_missed(
    cluster: ApiServer, relay: Any, relayed: ApiServer, own: str, down: bool
) -> None:
    cluster.create(a_map(own))
    with Watch(relayed, watched(own)) as watch:
        watch.wait(60)
        if down:
            relay.fail("watch=true", 503, "apiserver is starting", times=2)
            relay.fail("watch=true", 403, "RBAC is not loaded", reason="Forbidden")
        relay.cut()
        cluster.delete("ConfigMap", own)
        assert watch.wait(60)
    # From an old version, a server that was restored to an earlier state would report nothing for ever.
    assert not any("resourceVersion=" in each for each in relay.requests)


def test_a_version_that_is_too_old_is_followed_by_a_fresh_list(
    cluster: ApiServer, relay: Any, relayed: ApiServer, own: str
) -> None:
    gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    relay.fail("watch=true", 200, gone, times=3)

    with Watch(relayed, watched(own)) as watch:
        assert watch.wait(60)
        cluster.create(a_map(own))
        assert watch.wait(60)


def test_a_server_that_cannot_mark_the_end_of_a_list_is_watched_as_well(
    cluster: ApiServer, relay: Any, relayed: ApiServer, own: str
) -> None:
    relay.fail("sendInitialEvents", 422, "sendInitialEvents: Forbidden: not enabled", times=99)

    with Watch(relayed, watched(own)) as watch:
        assert watch.wait(60)
        cluster.create(a_map(own))
        assert watch.wait(60)
        relay.cut()
        cluster.delete("ConfigMap", own)
        assert watch.wait(60)


def test_a_rejection_that_lasts_ends_the_wait_and_a_later_one_goes_on(
    cluster: ApiServer, relayed_access: Access, own: str
) -> None:
    token = "expired"
    access = replace(
        relayed_access,
        credentials=lambda: Credentials(headers={"Authorization": f"Bearer {token}"}),
    )
    seconds = itertools.count(step=6)

    with Watch(ApiServer(access), watched(own), clock=lambda: next(seconds)) as watch:
        with pytest.raises(NotAuthenticatedError):
            watch.wait(60)
        token = "kube-bed-admin"  # After a login.
        while True:
            try:
                assert watch.wait(60)
                break
            except NotAuthenticatedError:  # Reported before that.
                continue
        cluster.create(a_map(own))
        assert watch.wait(60)


def test_a_log_whose_connection_breaks_has_every_line_once(
    cluster: ApiServer, relay: Any, relayed: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> None:
    # The same text again and again: only the time of a line tells it from the others.
    spec = a_job(
        """
import os
os.mkfifo("/kinetic/workspace/go")
for _ in range(3):
    for number in range(50):
        print("line", flush=True)
    print("wait", flush=True)
    open("/kinetic/workspace/go").read()
"""
    )
    create_workload(cluster, spec)
    with Watch(cluster, [Watched(kind="Pod", labels=of_job(spec.pod.job_id))]) as watch:
        while not (pods := cluster.list("Pod", labels=of_job(spec.pod.job_id))):
            watch.wait(60)
    name = pods[0]["metadata"]["name"]
    lines = []

    with PodLog(relayed, name) as log:
        for line in log:
            lines.append(line)
            if line == "wait":
                relay.cut()
                go = ("sh", "-c", "echo > /kinetic/workspace/go")
                look.bed.kubectl("exec", name, "-n", look.namespace, "--", *go)

    assert lines == (["line"] * 50 + ["wait"]) * 3
    assert sum("/log?" in each for each in relay.requests) > 3
