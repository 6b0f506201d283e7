"""Manifests of Pathways."""

from __future__ import annotations

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.manifests.components import instance_type


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        ("v4-8", "tpuv4:2x2x2"),
        ("v5litepod-2x4", "tpuv5e1t:2x4"),
        ("v5litepod-16", "tpuv5e:4x4"),
        ("v5p-8", "tpuv5:2x2x2"),
        ("v6e-8", "tpuv6e1t:2x4"),
        ("v6e-256", "tpuv6e:16x16"),
        ("tpu7x-8", "tpu7x:2x2x2"),
    ],
)
def test_the_instance_type_names_machine_and_topology(accelerator: str, expected: str) -> None:
    assert instance_type(parse_accelerator(accelerator)) == expected
