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

import kinetic_payload
import kinetic_runner
from kinetic_payload.errors import InvalidRequestError
from kinetic_runner.child.devices import DeviceCheck, DevicesError, Expected, is_plugin_installed

SOURCES = [str(Path(str(p.__file__)).parents[1]) for p in (kinetic_runner, kinetic_payload)]
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


class Jax:
    """As much of JAX as the check sees."""

    def __init__(self, *, platforms: str = "tpu,cpu", **devices: int) -> None:
        self.config = SimpleNamespace(jax_platforms=platforms)
        self.bridge = SimpleNamespace(backends=self.backends)
        self.devices = devices
        self.error: Exception | None = None

    def backends(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {
            name: SimpleNamespace(local_devices=lambda count=count: [None] * count)
            for name, count in self.devices.items()
        }


Start = Callable[..., DeviceCheck]


@pytest.fixture
def start(monkeypatch: Any) -> Start:
    def checked(
        jax: Jax, expected: str = "tpu:4", *, plugin: bool = False, **variables: str
    ) -> DeviceCheck:
        monkeypatch.setitem(sys.modules, "jax", jax)
        named = {"KINETIC_DEVICES": expected, "KINETIC_NODE_NAME": "node-7", **variables}
        check = DeviceCheck(named, seen.append, has_plugin=lambda _: plugin)
        check.wrap(jax.bridge)
        return check

    seen: list[str] = []
    checked.seen = seen  # type: ignore[attr-defined]
    return checked


@pytest.mark.parametrize(
    ("jax", "expected", "seen"),
    [
        (Jax(tpu=4, cpu=1), "tpu:4", "tpu:4"),
        (Jax(tpu=8, cpu=1), "tpu:4", "tpu:8"),  # two devices per chip
        (Jax(cuda=1, cpu=1, platforms="cuda,cpu"), "gpu:1", "gpu:1"),
        (Jax(proxy=8, platforms="proxy"), "tpu:8", "proxy:8"),
        (Jax(cpu=1, platforms="cpu"), "tpu:4", "cpu:1"),  # the user's choice
        (Jax(cpu=1, platforms="cpu"), "", "cpu:1"),
    ],
)
def test_what_jax_finds_is_reported_and_accepted(
    start: Start, jax: Jax, expected: str, seen: str
) -> None:
    start(jax, expected)
    for _ in range(2):
        jax.bridge.backends()
    assert start.seen == [seen]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("jax", "expected", "code"),
    [
        (Jax(cpu=1, platforms="cuda,cpu"), "gpu:1", 2),  # JAX itself says nothing
        (Jax(cpu=1, platforms=""), "tpu:4", 2),
        (Jax(cuda=7, cpu=1, platforms="cuda,cpu"), "gpu:8", 4),
        (Jax(proxy=4, platforms="proxy"), "tpu:8", 2),
    ],
)
def test_a_missing_accelerator_is_an_error_each_time_it_is_looked_for(
    start: Start, jax: Jax, expected: str, code: int
) -> None:
    check = start(jax, expected)
    for _ in range(2):
        with pytest.raises(DevicesError, match=f"{expected} was expected .* found") as caught:
            jax.bridge.backends()
    fault = check.fault_of(caught.value)
    assert fault is not None
    assert fault.exit_code == code


def test_no_visible_gpu_is_the_nodes_fault_if_the_image_has_its_part(start: Start) -> None:
    jax = Jax(cpu=1, platforms="cuda,cpu")
    check = start(jax, "gpu:1", plugin=True)

    with pytest.raises(DevicesError, match="broken") as caught:
        jax.bridge.backends()

    fault = check.fault_of(caught.value)
    assert fault is not None
    assert (fault.exit_code, "node-7" in fault.message) == (4, True)


def test_the_plugin_for_gpus_is_found_by_its_place(tmp_path: Path, monkeypatch: Any) -> None:
    assert not is_plugin_installed("tpu")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jax_plugins").mkdir()
    assert not is_plugin_installed("gpu")
    (tmp_path / "jax_plugins/xla_cuda12").mkdir()
    (tmp_path / "jax_plugins/xla_cuda12/__init__.py").write_text("")
    assert is_plugin_installed("gpu")


def test_devices_that_the_user_leaves_out_are_not_missed(start: Start) -> None:
    jax = Jax(cuda=1, cpu=1, platforms="cuda,cpu")
    start(jax, "gpu:8", CUDA_VISIBLE_DEVICES="0")
    assert len(jax.bridge.backends()) == 2


@pytest.mark.parametrize(
    ("text", "bad"), [(BUSY, True), (NOT_READY, True), (NO_LIBTPU, False), (NO_CUDA, False)]
)
def test_a_node_is_bad_if_all_is_installed_and_its_accelerator_does_not_start(
    start: Start, text: str, bad: bool
) -> None:
    jax = Jax(tpu=4)
    check = start(jax)
    jax.error = RuntimeError(text)
    with pytest.raises(RuntimeError) as caught:
        jax.bridge.backends()
    wrapped = ValueError("no mesh")
    wrapped.__cause__ = caught.value

    for error in (caught.value, wrapped):
        fault = check.fault_of(error)
        assert (fault is not None) is bad
        assert fault is None or (fault.exit_code == 4 and "node-7" in fault.message)
    # The same text from elsewhere says nothing about the node.
    assert check.fault_of(RuntimeError(text)) is None


def test_without_an_expected_accelerator_no_node_is_bad(start: Start) -> None:
    jax = Jax(tpu=4)
    check = start(jax, "")
    jax.error = RuntimeError(BUSY)
    with pytest.raises(RuntimeError) as caught:
        jax.bridge.backends()
    assert check.fault_of(caught.value) is None


def test_expected_devices_have_a_form() -> None:
    assert Expected.parse("tpu:4") == Expected("tpu", 4)
    for text in ("tpu", "tpu:", ":4", "tpu:x"):
        with pytest.raises(InvalidRequestError, match="KINETIC_DEVICES"):
            Expected.parse(text)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_the_real_jax_falls_back_to_the_cpu_where_no_gpu_is_visible_and_we_do_not() -> None:
    code = (
        f"import sys; sys.path[:0] = {SOURCES!r}\n"
        "from kinetic_runner.child.devices import DeviceCheck\n"
        "DeviceCheck({'KINETIC_DEVICES': sys.argv[1]}, print).install()\n"
        "print('jax' in sys.modules)\n"
        "import jax\n"
        "print(bool(jax._src.xla_bridge._backends))\n"
        "try: jax.numpy.zeros(1)\n"
        "except RuntimeError as error: print(error.message)\n"
    )

    def run(expected: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code, expected],
            env={**os.environ, "JAX_PLATFORMS": "cuda,cpu"},  # noqa: TID251 - the same, but for JAX
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert run("") == "False\nFalse\ncpu:1\n"
    assert run("gpu:1") == (
        "False\nFalse\ncpu:1\ngpu:1 was expected on this host, but JAX found cpu:1.\n"
    )
