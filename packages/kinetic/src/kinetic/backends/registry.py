"""The backends by name. No other module knows their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from kinetic.errors import InvalidRequestError
from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.target import Target
    from kinetic_k8s.accelerators import Accelerator
    from kinetic_payload.stores.store import Location

Semantics = Literal["gke", "pathways"]
"""`gke`: each host runs the function. `pathways`: one process controls the devices of all hosts."""


@frozen(kw_only=True)
class Entry:
    """One name that `backend=` accepts."""

    name: str
    module: str | None
    """The module with `connect`, imported on first use; None if this version does not have the backend."""
    on_this_machine: bool = False
    """Whether jobs run here: with local files, without a project, and with a folder as the store."""
    semantics: Semantics | None = None
    """None: decided by the accelerator."""

    def semantics_for(self, accelerator: Accelerator) -> Semantics:
        """Return the semantics for a job on *accelerator*.

        Raises:
            InvalidRequestError: The backend cannot run that accelerator.
        """
        chosen = self.semantics or ("pathways" if accelerator.multi_host else "gke")
        if chosen == "pathways" and accelerator.kind != "tpu":
            raise InvalidRequestError(
                f"Pathways supports TPU slices only; got {accelerator.canonical}.",
                hint="Leave the backend out, or use a TPU.",
            )
        return chosen

    def connect(self) -> Callable[[Target, Location, Settings], Services]:
        """Import the backend's module and return its `connect`.

        Raises:
            InvalidRequestError: This version has no such backend.
        """
        if self.module is None:
            raise InvalidRequestError(
                f"The backend {self.name!r} is not in this version of Kinetic.",
                hint=f"Set backend={LOCAL!r} or KINETIC_BACKEND={LOCAL} to run on this machine, "
                "with the shape of the slice emulated.",
            )
        from importlib import import_module

        found: Callable[[Target, Location, Settings], Services]
        found = import_module(self.module).connect
        return found


LOCAL: Final = "local"
"""The backend for jobs on this machine."""
CLUSTER: Final = "gke"
"""The default backend for jobs on a cluster."""

_LOCAL_MODULE: Final = "kinetic.backends.local.backend"
_CLUSTER_MODULE: Final = "kinetic.backends.gke.connect"
"""One backend runs jobs on a cluster; whether under Pathways is a property of each job."""

BACKENDS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Entry(name=CLUSTER, module=_CLUSTER_MODULE, semantics="gke"),
            Entry(name="pathways", module=_CLUSTER_MODULE, semantics="pathways"),
            Entry(name=LOCAL, module=_LOCAL_MODULE, on_this_machine=True),
            Entry(name="local-gke", module=_LOCAL_MODULE, on_this_machine=True, semantics="gke"),
            Entry(
                name="local-pathways",
                module=_LOCAL_MODULE,
                on_this_machine=True,
                semantics="pathways",
            ),
        )
    }
)


def entry_of(name: str) -> Entry:
    """Return the backend *name*; a name that this version does not know gets an entry without a module."""
    return BACKENDS.get(name) or Entry(name=name, module=None)


def asked_for(name: str, source: str) -> Entry:
    """Return the backend that the user named in *source*.

    Raises:
        InvalidRequestError: There is no such backend; the hint has a similar name, or all names.
    """
    entry = BACKENDS.get(name)
    if entry is not None:
        return entry
    import difflib

    near = difflib.get_close_matches(name.lower(), BACKENDS, n=1)
    known = ", ".join(repr(name) for name in BACKENDS)
    raise InvalidRequestError(
        f"There is no backend {name!r} (from: {source}).",
        hint=f"Did you mean {near[0]!r}?" if near else f"There are: {known}.",
    )


def suited_to(accelerator: Accelerator) -> Entry:
    """Return the default backend for *accelerator*, which always runs jobs on a cluster."""
    return BACKENDS["pathways" if accelerator.multi_host else CLUSTER]
