from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.reading.preflight import NodePool, missing, pool_command

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
        ("cpu", a_pool(taints=(("team", "a", "PreferNoSchedule"),))),
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

    assert f"The pool {pool} does not fit: " in text
    assert why in text
    assert missing(parse_accelerator("h100"), [pool]) == "There is no such node pool."


@pytest.mark.parametrize(
    ("accelerator", "flags"),
    [
        ("v6e-16:spot", "--max-nodes=4 --machine-type=ct6e-standard-4t --tpu-topology=4x4 --spot"),
        ("v6e-8", "--max-nodes=1 --machine-type=ct6e-standard-8t"),
        ("l4x2", "-24 --accelerator=type=nvidia-l4,count=2,gpu-driver-version=default"),
        ("tpu7x-16", "--tpu-topology=2x2x4 --placement-policy=POLICY"),
    ],
)
def test_the_command_for_a_pool_is_complete(accelerator: str, flags: str) -> None:
    command = pool_command(parse_accelerator(accelerator), "demo", "us-east5")

    assert "create POOL --cluster=demo --location=us-east5 --node-locations=ZONE " in command
    assert command.endswith(flags)
    assert ("create workload-policy POLICY" in command) is ("POLICY" in flags)
