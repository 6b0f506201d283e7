"""The shape and the environment of an emulated slice."""

from __future__ import annotations

import pytest

from kinetic.backends.local.emulation import Emulated, merge, shape_of
from kinetic.errors import InvalidRequestError
from kinetic_k8s.accelerators import parse_accelerator

COUNT = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    ("accelerator", "backend", "chosen", "hosts", "devices"),
    [
        ("tpu-v5litepod-4", None, "gke", 1, 4), ("tpu-v5litepod-4", "pathways", "pathways", 1, 4),
        ("v5e-8", "gke", "gke", 1, 8), ("v5e-16", None, "pathways", 1, 16),
        ("v5e-16", "pathways", "pathways", 1, 16), ("v5e-16", "gke", "gke", 4, 4),
        ("v5p", "gke", "gke", 2, 4), ("v5e-256", "gke", "gke", 64, 4), ("v4-512", None, "pathways", 1, 512),
        ("l4x4", None, "gke", 1, 4), ("h200", "gke", "gke", 1, 8), ("cpu", None, "gke", 1, 1),
        ("cpu:8", None, "gke", 1, 1),
    ],
)  # fmt: skip
def test_a_slice_is_emulated_with_its_hosts_and_devices(
    accelerator: str, backend: Emulated | None, chosen: str, hosts: int, devices: int
) -> None:
    shape = shape_of(parse_accelerator(accelerator), backend)

    assert (shape.backend, shape.hosts, shape.devices_per_host) == (chosen, hosts, devices)
    assert shape.environment == {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{COUNT}={devices}",
        "NPROC": str(devices + 64),
    }


@pytest.mark.parametrize(
    ("accelerator", "backend", "needed"),
    [
        ("v4-4096", None, "4096 virtual devices in one process"),
        ("v4-4096", "gke", "1024 processes"),
        ("v5p-512", "gke", "128 processes"),
    ],
)
def test_a_slice_that_is_too_large_is_refused_with_a_smaller_one(
    accelerator: str, backend: Emulated | None, needed: str
) -> None:
    wanted = parse_accelerator(accelerator)

    with pytest.raises(InvalidRequestError, match=needed) as refused:
        shape_of(wanted, backend)

    assert f"{accelerator.partition('-')[0]}-16" in (refused.value.hint or "")


@pytest.mark.parametrize("accelerator", ["l4", "cpu"])
def test_pathways_without_a_tpu_is_refused(accelerator: str) -> None:
    with pytest.raises(InvalidRequestError, match="Pathways supports TPU slices only"):
        shape_of(parse_accelerator(accelerator), "pathways")


@pytest.mark.parametrize(
    ("captured", "flags"),
    [
        ({}, f"{COUNT}=4"),
        ({"XLA_FLAGS": ""}, f"{COUNT}=4"),
        ({"XLA_FLAGS": "--xla_dump_to=d"}, f"--xla_dump_to=d {COUNT}=4"),
        ({"XLA_FLAGS": f"{COUNT}=2"}, f"{COUNT}=2"),
        ({"XLA_FLAGS": f"--xla_dump_to=d  {COUNT}=2"}, f"--xla_dump_to=d  {COUNT}=2"),
    ],
)
def test_captured_flags_are_kept_and_a_captured_device_count_is_used(
    captured: dict[str, str], flags: str
) -> None:
    shape = shape_of(parse_accelerator("v5e-4"))

    assert merge(shape.environment, captured)["XLA_FLAGS"] == flags


def test_captured_variables_replace_those_of_the_slice() -> None:
    shape = shape_of(parse_accelerator("v5e-4"))

    merged = merge(shape.environment, {"KERAS_BACKEND": "torch", "TOKEN": "t"})

    expected = {"KERAS_BACKEND": "torch", "TOKEN": "t", "JAX_PLATFORMS": "cpu"}
    assert {name: merged[name] for name in expected} == expected
