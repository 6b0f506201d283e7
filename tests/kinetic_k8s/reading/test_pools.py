from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.compute_class import COMPUTE_CLASS, Pool, class_of, parse_priority
from kinetic_k8s.reading.pools import (
    idle_command,
    node_pool_status,
    pool_status,
    waits_for,
)
from kinetic_k8s.reading.preflight import NodePool

UNTIL = "2026-11-27 12:00:00 UTC"


def compute_class(*conditions: tuple[str, str, str] | None, problem: str = "False") -> Manifest:
    """A class whose priorities have these conditions: their types, reasons and messages."""
    texts = ("v6e-8:spot", "v6e-8:flex-start", "v5litepod-8")[: len(conditions)]
    pool = Pool(name="p", priorities=tuple(map(parse_priority, texts)))
    statuses = [
        {
            "identifier": str(number),
            "conditions": [
                {"type": each[0], "status": "True", "reason": each[1], "message": each[2]}
            ],
        }
        for number, each in enumerate(conditions)
        if each
    ]
    conditions_of_class = [
        {"type": "CrdMisconfigured", "status": problem, "reason": "Wrong", "message": "No such."}
    ]
    status = {"priorityStatuses": statuses, "conditions": conditions_of_class}
    return {**class_of(pool), "status": status}


SUSPENDED = ("ProvisioningSuspended", "OutOfResources", f"It failed. Backing off until {UNTIL}.")
PARTLY = ("ProvisioningConstrained", "QuotaExceeded", f"In backoff until {UNTIL}.")
REFUSED = ("RuleMisconfigured", "MachineTypeNotFound", "No such machine.")
MAKES = ("NodeProvisioningInProgress", "Provisioning", "")


def test_a_pool_shows_what_gke_tries_and_what_it_has_given_up_for_a_while() -> None:
    nodes: list[Manifest] = [{"metadata": {"labels": {COMPUTE_CLASS: name}}} for name in "ppq"]
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    workloads: list[dict[str, Any]] = [
        {
            "metadata": {"labels": {"kinetic.dev/job-id": job}},
            "spec": {"template": {"spec": {"nodeSelector": {COMPUTE_CLASS: name}}}},
            "status": status,
        }
        for job, name, status in (("a", "p", {}), ("b", "q", {}), ("c", "p", ended))
    ]

    found = pool_status(compute_class(SUSPENDED, PARTLY, MAKES), nodes, workloads)

    assert found is not None
    assert list(map(str, found.priorities)) == [
        f"v6e-8:spot (in cool-down until {UNTIL}: OutOfResources)",
        f"v6e-8:flex-start (partly in cool-down until {UNTIL}: QuotaExceeded)",
        "v5litepod-8 (GKE makes machines)",
    ]
    assert (found.nodes, found.used_by, found.problem) == (2, ("a",), "")


@pytest.mark.parametrize(
    ("manifest", "reason", "remedy"),
    [
        (None, "'p' does not exist any more", "kinetic pool add"),
        (compute_class(None, problem="True"), "Wrong. No such.", "kinetic pool remove"),
        (compute_class(REFUSED), "MachineTypeNotFound. No such machine.", "kinetic pool remove"),
        (compute_class(REFUSED, MAKES), "(refused: MachineTypeNotFound.", ""),
        (compute_class(None), "", ""),
        (compute_class(SUSPENDED, MAKES), "v6e-8:flex-start (GKE makes machines).", ""),
        (
            compute_class(SUSPENDED, SUSPENDED),
            f"until {UNTIL}: OutOfResources",
            "kinetic pool add --accelerator v6e-8 --spot --name p --fallback v6e-8:flex-start --fallback ACCELERATOR",
        ),
    ],
)
def test_a_pod_without_a_node_is_explained_by_its_pool(
    manifest: Manifest | None, reason: str, remedy: str
) -> None:
    found = waits_for("p", manifest)

    assert all(part in text for part, text in zip((reason, remedy), found, strict=True))
    assert [bool(text) for text in found] == [bool(reason), bool(remedy)]


@pytest.mark.parametrize(
    ("made_for", "name", "named"),
    [("l4:spot", "gpus", "gpus"), ("v6e-16", "kinetic-np-v6e-16-1", "kinetic-np-v6e-16")],
)
def test_the_command_for_an_idle_node_pool_names_it(made_for: str, name: str, named: str) -> None:
    status = node_pool_status(NodePool(name=name, machine_type="m", made_for=made_for, min_nodes=4))

    wanted = f"kinetic pool add --node-pool --accelerator {made_for} --name {named} --min-nodes 0"
    assert idle_command(status) == wanted
