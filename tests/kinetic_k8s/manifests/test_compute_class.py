from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.errors import InvalidRequestError
from kinetic_k8s.manifests.compute_class import (
    COMPUTE_CLASS,
    Pool,
    check_pool,
    class_of,
    parse_priority,
    placement_in,
    pool_for,
    pool_of,
)


def pool(*priorities: str, name: str = "p", min_nodes: int = 0) -> Pool:
    return Pool(name=name, priorities=tuple(map(parse_priority, priorities)), min_nodes=min_nodes)


@pytest.mark.parametrize(
    ("priority", "rule"),
    [
        ("cpu", {"spot": False}),
        ("cpu:32:spot", {"minCores": 32, "spot": True}),
        (
            "l4x4",
            {"gpu": {"type": "nvidia-l4", "count": 4, "driverVersion": "default"}, "spot": False},
        ),
        (
            "v6e-8:spot",
            {"tpu": {"type": "tpu-v6e-slice", "count": 8, "topology": "2x4"}, "spot": True},
        ),
        (
            "v5p-16:flex-start",
            {
                "tpu": {"type": "tpu-v5p-slice", "count": 4, "topology": "2x2x4"},
                "flexStart": {"enabled": True},
                "maxRunDurationSeconds": 604800,
            },
        ),
        (
            "v4-8:reservation=other/mine",
            {
                "tpu": {"type": "tpu-v4-podslice", "count": 4, "topology": "2x2x2"},
                "reservations": {
                    "affinity": "Specific",
                    "specific": [{"name": "mine", "project": "other"}],
                },
            },
        ),
    ],
)
def test_a_priority_is_a_rule_of_the_class_and_is_read_back(
    priority: str, rule: dict[str, Any]
) -> None:
    made = pool(priority, min_nodes=4 * (not priority.startswith("cpu")))

    manifest = class_of(made)

    assert manifest["spec"]["priorities"] == [rule]
    check_pool(made)
    least = {"targetNodeCount": made.min_nodes} if made.min_nodes else None
    assert manifest["spec"].get("minimumCapacity") == least
    assert pool_of(manifest) == made


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (pool("v6e-8", name="Mine"), "name of a pool"),
        (pool("v6e-8:spot:flex-start"), "either spot machines, or flex-start"),
        (pool("v6e-8", "v6e-16"), "cannot stand in for v6e-8"),
        (pool("v6e-8", "l4x8"), "cannot stand in for v6e-8"),
        (pool("v6e-4", "tpu7x-4"), "cannot stand in for v6e-4"),
        (pool("v6e-8:reservation="), "not the name of a reservation"),
        (pool("v6e-8:reservation=projects/p/reservations/r"), "not the name of a reservation"),
        (pool("cpu", min_nodes=2), "which machines they are"),
        (pool("v5p-16", min_nodes=3), "no whole number of slices"),
    ],
)
def test_a_pool_that_gke_could_not_make_is_refused(refused: Pool, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_pool(refused)


def test_a_job_finds_the_pool_of_its_accelerator() -> None:
    pools = {
        name: pool(*priorities, name=name)
        for name, priorities in {
            "cpu": ("cpu",),
            "large": ("cpu:64",),
            "tpu": ("v6e-8", "v5litepod-8"),
            "spot": ("v6e-8:spot",),
        }.items()
    }
    foreign = class_of(pool("v4-8"))
    foreign["metadata"]["labels"] = {}
    classes = [foreign, *map(class_of, pools.values())]

    for job, expected in {
        "v6e-8": "tpu",
        "v6e-8:spot": "spot",
        "cpu": "cpu",
        "cpu:8": "cpu",
        "cpu:64": "large",
        "v5litepod-8": None,
        "v4-8": None,
    }.items():
        assert pool_for(parse_accelerator(job), classes) == pools.get(expected or "")


def test_a_pod_selects_what_all_machines_of_its_pool_have_in_common() -> None:
    tpu, topology = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
    spot = "cloud.google.com/gke-spot"
    asked = parse_accelerator("v6e-8:spot")

    alone = placement_in(pool("v6e-8:spot"), asked)
    bought = placement_in(pool("v6e-8:spot", "v6e-8"), asked)
    other = placement_in(pool("v6e-8:spot", "v5litepod-8:spot"), asked)
    exact = placement_in(pool("v6e-8:spot", "v5litepod-8:spot"), asked, exact=True)

    own = {tpu: "tpu-v6e-slice", topology: "2x4", COMPUTE_CLASS: "p"}
    assert alone.selector == exact.selector == {**own, spot: "true"}
    assert bought.selector == own
    assert other.selector == {topology: "2x4", spot: "true", COMPUTE_CLASS: "p"}
    assert [each["key"] for each in other.tolerations] == ["google.com/tpu", spot, COMPUTE_CLASS]
    assert other.resources == {"google.com/tpu": "8"}
    assert replace(alone, selector={}) == replace(bought, selector={})
    gpus = placement_in(pool("l4x4"), parse_accelerator("l4x4"))
    assert gpus.selector == {"cloud.google.com/gke-accelerator": "nvidia-l4", COMPUTE_CLASS: "p"}
