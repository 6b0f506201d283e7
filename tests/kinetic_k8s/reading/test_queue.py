"""Places in the queues of Kueue 0.19, from objects that were recorded on a real cluster.

The queue `research` has 100m of cpu. `hold-a` and `hold-b` hold 40m each, at priority 1; `wait-c`, `wait-d` and
`wait-e` came later, the second with priority 0; `urgent`, of priority 100, then pushed `hold-b` out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.reading.diagnosis import diagnosis_of
from kinetic_k8s.reading.queue import QueuePlace, place_of, queued

Manifest = dict[str, Any]
RECORDED = json.loads(Path(__file__).with_name("recorded_queue.json").read_text())
READABLE = ("Workload", "LocalQueue")


def place(
    name: str, situation: str = "waiting", readable: Sequence[str] = READABLE
) -> QueuePlace | None:
    objects = RECORDED[situation]
    job = next(
        o for o in RECORDED["waiting"] if (o["kind"], o["metadata"]["name"]) == ("Job", name)
    )
    kinds = ([o for o in objects if o["kind"] == kind and kind in readable] for kind in READABLE)
    workloads, local = kinds
    return place_of(job, workloads, local_queues=local, complete=readable == READABLE)


@pytest.mark.parametrize(
    ("name", "cause", "reason", "remedy"),
    [
        ("wait-c", "queued", "at position 1 of 4: couldn't assign flavors to pod set main: insufficient unused "
         "quota for cpu in flavor kn-lab-flavor, 20m more needed. "
         "The quota is held by hold-b (cpu 40m), hold-a (cpu 40m).", "higher priority class"),
        # Kueue has not considered it yet, because another one is before it.
        ("wait-e", "queued", "in the queue 'research', at position 2 of 4. The quota is held by", "Wait"),
        ("wait-d", "queued", "at position 3 of 4", "Wait"),
        ("unknown", "queue-missing", "LocalQueue no-such-queue doesn't exist", "the label kueue.x-k8s.io/queue-name"),
        ("held", "queue-inactive", "ClusterQueue kn-lab-stopped is inactive", "ask its administrator"),
        ("orphan", "queue-inactive", "ClusterQueue kn-lab-missing doesn't exist", "use another queue"),
        ("nomem", "queue-without-resource", "resource memory unavailable", "no quota for memory"),
        ("toobig", "queue-too-small", "> maximum capacity (40m)", "more of cpu than the queue ever has for it"),
    ],
)  # fmt: skip
def test_a_queued_job_has_its_reason_its_position_and_who_holds_the_quota(
    name: str, cause: str, reason: str, remedy: str
) -> None:
    found = place(name)
    assert found is not None
    why = queued(found)

    assert why is not None
    assert why.cause == cause
    assert reason in why.reason
    assert remedy in why.remedy


def test_a_preempted_job_waits_at_its_old_position_and_has_not_failed() -> None:
    job = next(o for o in RECORDED["after a preemption"] if o["metadata"]["name"] == "hold-b")
    found = diagnosis_of(
        job | {"spec": job["spec"] | {"suspend": True}},
        [],
        queue=place("hold-b", "after a preemption"),
    )

    assert found is not None
    assert found.cause == "queued"
    assert "at position 1 of 5" in found.reason
    assert "It had been admitted before: Preempted to accommodate a workload" in found.reason
    assert "held by hold-a (cpu 40m), urgent (cpu 40m)" in found.reason


def test_pods_with_a_scheduling_gate_of_the_queue_are_queued() -> None:
    # Kueue suspends Jobs and JobSets; the pods of a LeaderWorkerSet exist, and are held back.
    gate = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    pod = {"metadata": {"name": "p", "uid": "p"}, "status": {"conditions": [gate]}}
    job = {
        "metadata": {"name": "j", "uid": "j"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": {}}},
    }

    found = diagnosis_of(job, [pod], queue=QueuePlace("research"))

    assert found is not None
    assert found.cause == "queued"


def test_without_permission_to_read_queues_the_place_is_less_exact() -> None:
    own = place("wait-d", readable=("Workload",))
    namespace = place("wait-d", readable=["Workload", "LocalQueue"])

    assert own is not None
    assert own.position is None
    assert own.reason.startswith("couldn't assign flavors")
    assert namespace is not None
    assert "at position 3 or later" in str(queued(namespace))
    assert place("wait-d", readable=()) is None


NEVER = (
    "insufficient quota for {} in flavor {}, previously considered podsets requests (0) + current podset "
    "request (90m) > maximum capacity (40m)"
)
NOW = "insufficient unused quota for {} in flavor {}, 20m more needed"


@pytest.mark.parametrize(
    ("flavors", "cause"),
    [
        ([NEVER.format("cpu", "spot"), NOW.format("cpu", "standard")], "queued"),
        ([NOW.format("cpu", "spot"), NEVER.format("cpu", "standard")], "queued"),
        ([NEVER.format("cpu", "spot"), NEVER.format("cpu", "standard")], "queue-too-small"),
        # Another resource of a flavor that never has enough.
        ([NEVER.format("cpu", "spot"), NOW.format("memory", "spot")], "queue-too-small"),
    ],
)
def test_a_queue_is_too_small_only_if_all_of_its_flavors_are(
    flavors: list[str], cause: str
) -> None:
    why = queued(
        QueuePlace(
            "research",
            reason=f"couldn't assign flavors to pod set main: {', '.join(flavors)}",
        )
    )

    assert why is not None
    assert why.cause == cause


def test_an_admitted_job_does_not_wait_and_a_deactivated_one_has_its_own_cause() -> None:
    admitted = place("hold-b")

    assert admitted is not None
    assert queued(admitted) is None
    why = queued(QueuePlace("research", active=False, eviction="The workload is deactivated"))
    assert why is not None
    assert why.cause == "queue-deactivated"
