"""(child) Check the devices that JAX finds, at the moment when user code makes JAX look for them.

Nothing here imports or initialises JAX. Kinetic sets `JAX_PLATFORMS=tpu,cpu` or `cuda,cpu` on a cluster: JAX then
raises if the TPU cannot be initialised. It does not raise if no NVIDIA device is visible (it skips `cuda`,
https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/_src/xla_bridge.py, `backends`), nor if there are fewer
devices than the machine has.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from kinetic_payload.errors import KineticError
from kinetic_payload.layout import EXIT_BAD_NODE, EXIT_NOT_PREPARED, Env
from kinetic_runner.child.imports import after_import
from kinetic_runner.child.tracebacks import causes_of

_PLATFORMS: Final = {"cuda": "gpu", "rocm": "gpu"}
"""What JAX calls a platform in `JAX_PLATFORMS` → what it calls the platform of its devices."""
_RESTRICTIONS: Final = ("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
"""Variables by which user code leaves out devices of its machine."""
BAD_NODE_SIGNS: Final = (
    # Another process of the machine holds the chips.
    # https://github.com/vllm-project/tpu-inference/pull/2257: open(/dev/vfio/0): Device or resource busy
    "Device or resource busy",
    "Couldn't open iommu group",
    # https://github.com/jax-ml/jax/issues/22070
    "The TPU is already in use by process",
    # https://github.com/jax-ml/jax/issues/10192
    "libtpu.so already in use",
    # The chips do not answer, or not to each other.
    "TPU initialization failed",
    # https://github.com/google/gemma_pytorch/issues/25
    "Failed to get global TPU topology",
    # https://github.com/jax-ml/jax/issues/18780
    "NOT_FOUND: No ba16c7433 device found",
    # The driver, the fabric manager or the GPU itself: texts of cuInit and of the first context,
    # https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
    # https://github.com/jax-ml/jax/issues/24866
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "CUDA_ERROR_NO_DEVICE",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_UNKNOWN",
    # https://github.com/jax-ml/jax/issues/21299
    "No visible GPU devices",
)
"""Texts of errors with which JAX fails to initialise a machine's accelerator, although all is installed."""


class DevicesError(KineticError, RuntimeError):
    """JAX did not find the devices that this host should have."""


class DeviceCheck:
    """Watches how JAX initialises its backends in this process.

    *on_seen* is called once, with the devices that JAX found. *has_plugin* tells whether JAX's support for a
    platform is installed.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        on_seen: Callable[[str], object] = lambda _: None,
        *,
        has_plugin: Callable[[str], bool] | None = None,
    ) -> None:
        self._environment = environment
        self.expected = environment.get(Env.DEVICES, "")
        """The devices that JAX should find on this host, at least, as `PLATFORM:NUMBER`; "": any."""
        self._platform = self.expected.partition(":")[0]
        self._on_seen = on_seen
        self._has_plugin = has_plugin or is_plugin_installed
        self._seen: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._pid = os.getpid()

    def install(self) -> None:
        """Check the devices as soon as user code has made JAX look for them."""
        after_import("jax._src.xla_bridge", self.wrap)

    def wrap(self, module: Any) -> None:
        """Wrap the function of *module* by which JAX initialises its backends; nothing changes without it."""
        original = getattr(module, "backends", None)
        if original is None:
            return

        @functools.wraps(original)
        def backends() -> Any:
            if os.getpid() != self._pid:
                return original()
            try:
                found = original()
            except Exception as error:
                self._failure = error
                raise
            if not self._seen:
                counts: dict[str, int] = {}
                for name, client in found.items():
                    platform = _PLATFORMS.get(name, name)
                    counts[platform] = counts.get(platform, 0) + len(client.local_devices())
                accelerators = {name: count for name, count in counts.items() if name != "cpu"}
                self._seen = accelerators or counts
                self._on_seen(_text_of(self._seen))
            problem = self._problem()
            if problem is not None:
                self._failure = problem
                raise problem
            return found

        module.backends = backends

    def fault_of(self, error: BaseException) -> tuple[str, int] | None:
        """Return why the accelerator cannot be used, and the exit code for that, if JAX raised *error* for it.

        An error that user code raises because of that one counts as well.
        """
        if not self.expected or self._is_restricted:
            return None
        if not any(each is self._failure for each in causes_of(error)):
            return None
        failure = str(self._failure)
        if isinstance(self._failure, DevicesError):
            none_at_all = not self._seen.get(self._platform)
            if none_at_all and not self._has_plugin(self._platform):
                return failure, EXIT_NOT_PREPARED
        elif not any(sign in failure for sign in BAD_NODE_SIGNS):
            return None
        node = self._environment.get(Env.NODE_NAME) or os.uname().nodename
        return f"The accelerator of the node {node} cannot be used: {failure}", EXIT_BAD_NODE

    def _problem(self) -> DevicesError | None:
        if not self.expected or self._is_restricted:
            return None
        chosen = sys.modules["jax"].config.jax_platforms or self._platform
        platforms = {_PLATFORMS.get(name, name) for name in chosen.split(",")}
        # Under Pathways, all devices belong to the proxy.
        name = "proxy" if "proxy" in platforms else self._platform
        number = int(self.expected.partition(":")[2])
        if name not in platforms or self._seen.get(name, 0) >= number:
            return None  # User code chose another platform, or all is well.
        hint = (
            "Some of them may be broken."
            if self._seen.get(name) or self._has_plugin(name)
            else f"JAX needs its support for {self._platform.upper()} in the image. "
            "To compute on the CPU on purpose, set JAX_PLATFORMS=cpu."
        )
        return DevicesError(
            f"{self.expected} was expected on this host, but JAX found {_text_of(self._seen)}.",
            hint=hint,
        )

    @property
    def _is_restricted(self) -> bool:
        if any(self._environment.get(name) is not None for name in _RESTRICTIONS):
            return True
        config = getattr(sys.modules.get("jax"), "config", None)
        return getattr(config, "jax_cuda_visible_devices", "all") != "all"


def is_plugin_installed(platform: str) -> bool:
    """Tell whether JAX's support for NVIDIA GPUs is installed; False for other platforms.

    JAX finds its plugins in this namespace package, and skips that for CUDA if no device is visible:
    https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/_src/xla_bridge.py, `discover_pjrt_plugins`. Of a TPU that
    cannot be used it tells by itself.
    """
    import importlib.util
    import pkgutil

    found = importlib.util.find_spec("jax_plugins") if platform == "gpu" else None
    folders = found.submodule_search_locations if found is not None else None
    return any(plugin.name.startswith("xla_cuda") for plugin in pkgutil.iter_modules(folders or ()))


def _text_of(seen: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{count}" for name, count in sorted(seen.items()))
