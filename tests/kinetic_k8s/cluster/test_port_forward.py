"""Which pod is the leader, in pods recorded from a real cluster; tests/cluster forwards to pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetic_k8s.cluster.port_forward import running_pod
from kinetic_k8s.reading.attempts import views

RECORDED = json.loads((Path(__file__).parents[1] / "reading" / "recorded.json").read_text())


@pytest.mark.parametrize(
    ("case", "leader"),
    [
        ("jobset: host 1 has no room", "js-wait-worker-0-0-pkg8r"),
        ("jobset: one host is evicted", "js-evict-worker-0-0-djxcv"),
        ("jobset: host 1 ends with 139, host 0 aborts", None),
        ("pathways: workers wait", "pw-wait-pathways-head-0-0-95m6f"),
        ("pathways: workers are replaced", "pw-crash-pathways-head-0-0-5hc9h"),
        ("pathways: workers failed", None),
        ("leaderworkerset: no node for workers", "lws-wnode-0"),
    ],
)
def test_the_leader_is_the_first_host_that_runs_the_function_now(
    case: str, leader: str | None
) -> None:
    pods = views(RECORDED[case]["pods"])

    found = running_pod(reversed(pods))

    assert (found and found.name) == leader


def test_of_several_hosts_that_run_the_leader_is_the_first() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        {
            "metadata": {"name": f"p{n}", "creationTimestamp": str(n), "labels": {index: str(n)}},
            "spec": {"nodeName": "node"},
        }
        for n in (0, 1)
    ]

    leader = running_pod(views(pods))

    assert leader is not None
    assert leader.name == "p0"
