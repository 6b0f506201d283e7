"""JAX is real in one test; elsewhere its backends are stand-ins, since there is no accelerator here."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic_runner.child.devices import DeviceCheck, DevicesError, is_plugin_installed

BUSY = (
    "Unable to initialize backend 'tpu': FAILED_PRECONDITION: TPU initialization failed: "
    "open(/dev/vfio/0): Device or resource busy: Device or resource busy"
)
NO_LIBTPU = (
    "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open"
)
NO_CUDA = "Unable to initialize backend 'cuda': Backend 'cuda' is not in the list of known backends"
NOT_READY = (
    "Unable to initialize backend 'cuda': INTERNAL: CUDA error: Failed call to cuInit: "
    "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
)
ON_GPU = {"platforms": "cuda,cpu"}


class Jax:
    """As much of JAX as the check sees."""

    def __init__(self, error: str = "", *, platforms: str = "tpu,cpu", **devices: int) -> None:
        self.config = SimpleNamespace(jax_platforms=platforms)
        self.bridge = SimpleNamespace(backends=self.backends)
        self.devices = devices
        self.error = error

    def backends(self) -> dict[str, Any]:
        if self.error:
            raise RuntimeError(self.error)
        return {
            name: SimpleNamespace(local_devices=lambda count=count: [None] * count)
            for name, count in self.devices.items()
        }


Start = Callable[..., DeviceCheck]


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def start(monkeypatch: Any, seen: list[str]) -> Start:
    def start(
        jax: Jax, expected: str = "tpu:4", *, plugin: bool = False, **variables: str
    ) -> DeviceCheck:
        monkeypatch.setitem(sys.modules, "jax", jax)
        named = {"KINETIC_DEVICES": expected, "KINETIC_NODE_NAME": "node-7", **variables}
        check = DeviceCheck(named, seen.append, has_plugin=lambda _: plugin)
        check.wrap(jax.bridge)
        return check

    return start


@pytest.mark.parametrize(
    ("jax", "expected", "variables", "found"),
    [
        (Jax(tpu=4, cpu=1), "tpu:4", {}, "tpu:4"),
        (Jax(tpu=8, cpu=1), "tpu:4", {}, "tpu:8"),  # two devices per chip
        (Jax(cuda=1, cpu=1, **ON_GPU), "gpu:1", {}, "gpu:1"),
        (Jax(cuda=1, cpu=1, **ON_GPU), "gpu:8", {"CUDA_VISIBLE_DEVICES": "0"}, "gpu:1"),
        (Jax(proxy=8, platforms="proxy"), "tpu:8", {}, "proxy:8"),
        (Jax(cpu=1, platforms="cpu"), "tpu:4", {}, "cpu:1"),  # the user's choice
        (Jax(cpu=1, platforms="cpu"), "", {}, "cpu:1"),
    ],
)
def test_devices_that_suffice_are_reported_once(
    start: Start, seen: list[str], jax: Jax, expected: str, variables: dict[str, str], found: str
) -> None:
    start(jax, expected, **variables)
    for _ in range(2):
        assert len(jax.bridge.backends()) == len(jax.devices)
    assert seen == [found]


@pytest.mark.parametrize(
    ("jax", "expected", "plugin", "code"),
    [
        (Jax(cpu=1, **ON_GPU), "gpu:1", False, 2),  # JAX itself does not raise
        (Jax(cpu=1, **ON_GPU), "gpu:1", True, 4),  # the image has JAX's support for GPUs
        (Jax(cpu=1, platforms=""), "tpu:4", False, 2),
        (Jax(cuda=7, cpu=1, **ON_GPU), "gpu:8", False, 4),
        (Jax(proxy=4, platforms="proxy"), "tpu:8", False, 2),
    ],
)
def test_a_missing_accelerator_is_an_error_each_time_and_some_are_the_nodes_fault(
    start: Start, jax: Jax, expected: str, plugin: bool, code: int
) -> None:
    check = start(jax, expected, plugin=plugin)
    for _ in range(2):
        with pytest.raises(DevicesError, match=f"{expected} was expected .* found") as caught:
            jax.bridge.backends()
    fault = check.fault_of(caught.value)
    assert fault is not None
    assert (fault[1], "node-7" in fault[0]) == (code, code == 4)


def test_the_plugin_for_gpus_is_found_by_its_place(tmp_path: Path, monkeypatch: Any) -> None:
    assert not is_plugin_installed("tpu")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jax_plugins").mkdir()
    assert not is_plugin_installed("gpu")
    (tmp_path / "jax_plugins/xla_cuda12").mkdir()
    (tmp_path / "jax_plugins/xla_cuda12/__init__.py").write_text("")
    assert is_plugin_installed("gpu")


@pytest.mark.parametrize(
    ("text", "expected", "bad"),
    [
        (BUSY, "tpu:4", True),
        (NOT_READY, "gpu:4", True),
        (NO_LIBTPU, "tpu:4", False),
        (NO_CUDA, "gpu:4", False),
        (BUSY, "", False),
    ],
)
def test_a_node_is_bad_if_all_is_installed_and_its_accelerator_does_not_start(
    start: Start, text: str, expected: str, bad: bool
) -> None:
    jax = Jax(text)
    check = start(jax, expected)
    with pytest.raises(RuntimeError) as caught:
        jax.bridge.backends()
    wrapped = ValueError("no mesh")
    wrapped.__cause__ = caught.value

    for error in (caught.value, wrapped):
        fault = check.fault_of(error)
        assert (fault is not None) is bad
        assert fault is None or (fault[1] == 4 and "node-7" in fault[0])
    # The same text from elsewhere proves nothing about the node.
    assert check.fault_of(RuntimeError(text)) is None


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_the_real_jax_falls_back_to_the_cpu_where_no_gpu_is_visible_and_we_do_not() -> None:
    code = (
        "import sys; from kinetic_runner.child.devices import DeviceCheck\n"
        "DeviceCheck({'KINETIC_DEVICES': 'gpu:1'}, print).install()\n"
        "print('jax' in sys.modules)\n"
        "import jax\n"
        "print(bool(jax._src.xla_bridge._backends))\n"
        "try: jax.numpy.zeros(1)\n"
        "except RuntimeError as error: print(error.message)\n"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cuda,cpu"}  # noqa: TID251 - the same, but for JAX

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "False\nFalse\ncpu:1\ngpu:1 was expected on this host, but JAX found cpu:1.\n"
    )
