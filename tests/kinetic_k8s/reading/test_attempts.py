"""The attempts that pods show, recorded on a real cluster or in the states that it was seen in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinetic_k8s.reading.status import AttemptState, AttemptView, attempts_of

Manifest = dict[str, Any]
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())


def a_job(*, suspend: bool = False, **labels: str) -> Manifest:
    return {"metadata": {"name": "j", "labels": labels}, "spec": {"suspend": suspend}}


def a_pod(name: str, code: int | None, *, second: int = 0, **status: Any) -> Manifest:
    state = (
        {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error"}}
    )
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    created = f"2026-11-22T10:15:{second:02d}Z"
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "kinetic", "state": state}],
            **status,
        },
    }


EVICTED = {"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}


def states(attempts: list[AttemptView]) -> list[tuple[int, str, str]]:
    return [(each.number, each.state.value, each.message) for each in attempts]


def test_each_attempt_of_a_job_on_one_host_has_its_node_and_its_end() -> None:
    pods = [
        a_pod("c", None, second=3),
        a_pod("a", 143, second=1, conditions=[EVICTED]),
        a_pod("b", 1, second=2),
    ]
    found = attempts_of(a_job(), pods)

    assert states(found) == [
        (1, "disrupted", "The cluster ended the pod: Eviction API: evicting"),
        (2, "failed", "The container ended with exit code 1."),
        (3, "running", ""),
    ]


def test_an_attempt_that_the_queue_stopped_has_not_failed() -> None:
    queued = {"kueue.x-k8s.io/queue-name": "research"}
    waits = attempts_of(a_job(suspend=True, **queued), [a_pod("a", 143)])

    assert states(waits) == [(1, "disrupted", "The queue stopped it.")]


def test_an_attempt_on_several_hosts_has_the_message_of_the_first_to_end() -> None:
    crash, eviction, half = (
        RECORDED[f"jobset: {name}"]
        for name in (
            "host 1 ends with 139, host 0 aborts",
            "one host is evicted",
            "host 1 has no room",
        )
    )

    [failed] = attempts_of(crash["workload"], crash["pods"])
    assert failed.message.startswith("Host 1: The container ended with exit code 139")
    assert (failed.hosts, failed.state) == (2, AttemptState.FAILED)
    [running] = attempts_of(eviction["workload"], eviction["pods"])
    assert (running.hosts, running.state) == (2, AttemptState.RUNNING)
    [waiting] = attempts_of(half["workload"], half["pods"])
    assert (waiting.hosts, waiting.state) == (2, AttemptState.RUNNING)


def test_components_of_pathways_are_no_attempts() -> None:
    found = RECORDED["pathways: workers crash"]

    assert [each.hosts for each in attempts_of(found["workload"], found["pods"])] == [1]
