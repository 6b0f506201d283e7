"""How many lists the place of a job in a queue costs, as an administrator and with a role of one namespace."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.cluster.queues import Queues
from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.causes import QUEUE

JOB: Manifest = {"metadata": {"name": "kn-train", "uid": "1", "labels": {QUEUE: "research"}}}
LOCAL_QUEUE = {
    "metadata": {"name": "research", "namespace": "team"},
    "spec": {"clusterQueue": "shared"},
}
EVERYWHERE, OWN = "everywhere: ", "own: "
BOTH = ["Workload", "LocalQueue"]


class Cluster:
    """A cluster with one job in a queue of Kueue; it notes the lists, and forbids some."""

    def __init__(self, forbidden: tuple[str, ...], *, admitted: bool) -> None:
        state = [{"type": each, "status": str(admitted)} for each in ("QuotaReserved", "Admitted")]
        own = {"name": "job-kn-train", "namespace": "team", "uid": "2"}
        workload = {
            "metadata": own | {"ownerReferences": [{"uid": "1"}]},
            "spec": {"queueName": "research"},
            "status": {"conditions": state},
        }
        self.objects = {"Workload": workload, "LocalQueue": LOCAL_QUEUE}
        self.forbidden = forbidden
        self.lists: list[str] = []

    def serves(self, kind: str) -> bool:
        return kind == "Workload"

    def list(self, kind: str, *, everywhere: bool) -> list[Manifest]:
        self.lists.append((EVERYWHERE if everywhere else OWN) + kind)
        if self.lists[-1].startswith(self.forbidden):
            raise NotPermittedError("You may not list them.")
        return [self.objects[kind]]


@pytest.mark.parametrize(
    ("forbidden", "admitted", "first", "later", "place"),
    [
        # An administrator gets the exact position; with a role of the namespace it may be a later one.
        ((), False, [EVERYWHERE + each for each in BOTH], None, (1, True)),
        ((EVERYWHERE,), False, [EVERYWHERE + "Workload", *(OWN + each for each in BOTH)],
         [OWN + each for each in BOTH], (1, False)),
        ((EVERYWHERE,), True, [EVERYWHERE + "Workload", OWN + "Workload"], [OWN + "Workload"], (None, False)),
        ((EVERYWHERE, OWN), False, [EVERYWHERE + "Workload", OWN + "Workload"], [], None),
    ],
    ids=["administrator", "role", "admitted", "nothing"],
)  # fmt: skip
def test_what_the_user_may_not_list_is_asked_for_once(
    forbidden: tuple[str, ...], admitted: bool, first: list[str], later: Any, place: Any
) -> None:
    queues, lists = Queues(), []
    for _ in range(2):
        cluster: Any = Cluster(forbidden, admitted=admitted)
        found = queues.place(cluster, JOB)
        lists.append(cluster.lists)
        assert (found and (found.position, found.complete)) == place
        assert (found is not None and found.admitted) is admitted

    assert lists == [first, first if later is None else later]
