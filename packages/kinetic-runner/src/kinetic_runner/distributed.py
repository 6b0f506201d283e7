"""Join the hosts of a slice: `jax.distributed` is initialised right after user code imports JAX.

Nothing here imports JAX. A hook in `sys.meta_path` waits for somebody else to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kinetic_payload.errors import KineticError


class DistributedError(KineticError):
    """This host could not join the others."""


@dataclass(frozen=True)
class Slice:
    """The values that `jax.distributed.initialize` takes, passed explicitly."""

    coordinator: str
    """`address:port` of the leader."""
    hosts: int
    host: int

    @property
    def bind_address(self) -> str | None:
        """Where the leader's service listens: on loopback only, if that is where it is reached."""
        name = self.coordinator.rpartition(":")[0]
        return self.coordinator if name in ("127.0.0.1", "localhost", "[::1]") else None


def prepare(slice_: Slice) -> None:
    """Make `import jax` join *slice_*, once, in this process; forked children are left alone."""
    after_import("jax", lambda jax: join(jax, slice_))


def join(jax: Any, slice_: Slice) -> None:
    """Initialise `jax.distributed` of the module *jax*; the user's own calls then do no harm."""
    original = jax.distributed.initialize
    explicit: dict[str, Any] = {
        "coordinator_address": slice_.coordinator,
        "num_processes": slice_.hosts,
        "process_id": slice_.host,
        # All values are known; asking metadata servers for them costs time, or hangs.
        "cluster_detection_method": "deactivate",
    }
    if slice_.bind_address is not None:
        explicit["coordinator_bind_address"] = slice_.bind_address

    def initialize(*args: Any, **kwargs: Any) -> None:
        """Do nothing if the hosts are joined; else join them with the slice's values."""
        if _is_joined(jax):
            return
        named = dict(
            zip(("coordinator_address", "num_processes", "process_id"), args, strict=False)
        )
        asked = {k: v for k, v in {**named, **kwargs}.items() if v is not None}
        original(*args[3:], **{**explicit, **asked})

    try:
        original(**explicit)
    except Exception as error:
        raise DistributedError(
            f"Host {slice_.host} of {slice_.hosts} could not join the coordinator at "
            f"{slice_.coordinator}: {error}",
            hint="Look at the logs of the other hosts: one of them may have failed before.",
        ) from error
    jax.distributed.initialize = initialize


def forsake() -> None:
    """Leave the slice without a farewell, if this process is part of one.

    JAX's own exit handler waits until all hosts say farewell. Where this one failed, the others wait for
    it in the middle of their work, and nobody would hear of the failure until that waiting ends.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and getattr(state, "client", None) is not None:
        # Kept, because they say farewell when they are destroyed, too.
        _forsaken.extend((state.client, state.service))
        state.client = state.service = None


_forsaken: list[Any] = []


def _is_joined(jax: Any) -> bool:
    is_initialized = getattr(jax.distributed, "is_initialized", None)
    if is_initialized is not None:
        return bool(is_initialized())
    return jax._src.distributed.global_state.client is not None


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call *then* with the module *name* once it is imported, before the importer sees it."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport:
    """A finder that finds nothing itself and adds a step to the loader that the others find."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self._pid = os.getpid()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or os.getpid() != self._pid:
            return None
        for finder in list(sys.meta_path):
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._extend(spec)
                return spec
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if loader is None:  # A namespace package: not the module we wait for.
            return
        exec_module = loader.exec_module

        def extended(module: ModuleType) -> None:
            # `find_spec` is also how one asks whether a module is there: the hook stays until
            # the module is really executed.
            loader.exec_module = exec_module
            exec_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then(module)

        # On the instance: whoever asks the spec for its loader still finds the real one.
        loader.exec_module = extended
