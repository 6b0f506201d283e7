"""The form of a job: which workload of Kubernetes runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kinetic.backends.registry import Semantics
    from kinetic_k8s.accelerators import Accelerator
    from kinetic_k8s.manifests.workload import Kind

Form = Literal["job", "jobset"]


def form_on(accelerator: Accelerator, semantics: Semantics) -> Form:
    return "jobset" if accelerator.multi_host else "job"


def kind_of_form(form: Form) -> Kind:
    return "Job" if form == "job" else "JobSet"
