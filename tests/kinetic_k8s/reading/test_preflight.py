from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.reading.preflight import NodePool, missing

TPU = ("google.com/tpu", "present", "NoSchedule")
GPU = ("nvidia.com/gpu", "present", "NoSchedule")


def a_pool(machine_type: str = "e2-standard-4", **fields: Any) -> NodePool:
    return NodePool(**{"name": "p", "machine_type": machine_type, "max_nodes": 4, **fields})


def gpus(count: int, machine_type: str = "g2-standard-4", **fields: Any) -> NodePool:
    return a_pool(machine_type, accelerators={"nvidia-l4": count}, taints=(GPU,), **fields)


def tpus(machine_type: str, topology: str = "", **fields: Any) -> NodePool:
    return a_pool(machine_type, tpu_topology=topology, taints=(TPU,), **fields)


@pytest.mark.parametrize(
    ("accelerator", "pool"),
    [
        ("cpu", a_pool()),
        ("cpu", a_pool(min_nodes=1, max_nodes=None)),
        ("cpu", a_pool("g2-standard-4", accelerators={"nvidia-l4": 1})),
        ("v6e-16", tpus("ct6e-standard-4t", "4x4", max_nodes=None)),
        ("tpu7x-16", tpus("tpu7x-standard-4t", placement_policy="ours")),
        ("l4", gpus(1)),
        ("l4", gpus(1, "g2-standard-16")),
        ("l4:spot", gpus(1, spot=True)),
        ("l4", gpus(1, spot=True)),
        ("v6e-8", tpus("ct6e-standard-8t")),
        ("v6e-8", tpus("ct6e-standard-8t", "2x4")),
        ("v6e-16", tpus("ct6e-standard-4t", "4x4")),
    ],
)
def test_a_pool_with_the_machine_fits(accelerator: str, pool: NodePool) -> None:
    assert (
        missing(parse_accelerator(accelerator), [a_pool("n1-standard-1", taints=(TPU,)), pool])
        == ""
    )


@pytest.mark.parametrize(
    ("accelerator", "pool", "why"),
    [
        ("l4x2", gpus(1), "the number of GPUs of each machine is 1"),
        ("l4:spot", gpus(1), "its machines are not spot machines"),
        ("l4", gpus(1, max_nodes=0), "it has at most 0 machines"),
        ("v6e-8", tpus("ct6e-standard-4t", "2x4"), "its machine type is ct6e-standard-4t"),
        ("v6e-16", tpus("ct6e-standard-4t", "4x8"), "its topology is 4x8"),
        ("v6e-16", tpus("ct6e-standard-4t"), "its topology is that of one machine"),
        ("v6e-4", tpus("ct6e-standard-4t", "4x4"), "its topology is 4x4"),
        ("v6e-16", tpus("ct6e-standard-4t", "4x4", max_nodes=3), "it has at most 3 machines"),
        ("cpu", gpus(1), "the taint nvidia.com/gpu=present:NoSchedule"),
        ("cpu", tpus("ct6e-standard-4t"), "the taint google.com/tpu=present:NoSchedule"),
        ("tpu7x-16", tpus("tpu7x-standard-4t", "2x2x1"), "its topology is 2x2x1"),
        ("cpu", a_pool(taints=(("team", "a", "NoSchedule"),)), "the taint team=a:NoSchedule"),
    ],
)
def test_a_pool_that_does_not_fit_is_named_with_the_reason(
    accelerator: str, pool: NodePool, why: str
) -> None:
    text = missing(parse_accelerator(accelerator), [pool])

    assert "It needs a node pool with" in text
    assert f"The pool {pool} does not fit: " in text
    assert why in text


def test_the_needed_machine_is_named_in_full() -> None:
    assert missing(parse_accelerator("v6e-16:spot"), []) == (
        "It needs a node pool with the machine type ct6e-standard-4t, the topology 4x4 and 4 machines, "
        "on spot machines, and there is none."
    )
    assert "1 GPU of the type nvidia-l4 on each machine" in missing(
        parse_accelerator("l4"), [a_pool()]
    )


def test_a_taint_that_only_discourages_does_not_matter() -> None:
    pool = a_pool(taints=(("team", "a", "PreferNoSchedule"),))

    assert missing(parse_accelerator("cpu"), [pool]) == ""
