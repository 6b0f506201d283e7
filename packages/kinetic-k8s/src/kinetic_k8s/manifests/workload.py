"""The kind of workload that runs a job: a Job, for one host."""

from __future__ import annotations

from typing import Literal

from kinetic_k8s.accelerators.types import Accelerator, describe
from kinetic_k8s.errors import UnsupportedWorkloadError

Form = Literal["job"]


def form_of(accelerator: Accelerator) -> Form:
    """Return the kind of workload for a job on *accelerator*.

    Raises:
        UnsupportedWorkloadError: The accelerator has several hosts.
    """
    if accelerator.multi_host:
        raise UnsupportedWorkloadError(
            f"{describe(accelerator)}: jobs on several hosts are not supported on Kubernetes yet.",
            hint="Use a slice that fits on one host; `kinetic accelerators` lists them.",
        )
    return "job"
