"""Placement: the machine that an accelerator names, as selectors, tolerations and resources.

https://cloud.google.com/kubernetes-engine/docs/concepts/tpus and .../how-to/gpus.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu
from kinetic_k8s.manifests import Manifest

TPU: Final = "google.com/tpu"
GPU: Final = "nvidia.com/gpu"
SPOT: Final = "cloud.google.com/gke-spot"
_TPU_TYPE: Final = "cloud.google.com/gke-tpu-accelerator"
_TPU_TOPOLOGY: Final = "cloud.google.com/gke-tpu-topology"
_GPU_TYPE: Final = "cloud.google.com/gke-accelerator"
COUNT: Final = "cloud.google.com/gke-accelerator-count"
_ARCHITECTURE: Final = "kubernetes.io/arch"
ACCELERATOR_SELECTORS: Final = frozenset({_TPU_TYPE, _TPU_TOPOLOGY, _GPU_TYPE, COUNT})
"""The labels of nodes that describe their accelerator."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a pod may run, and the resources that it uses there."""

    selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Manifest] = field(default_factory=list)
    resources: dict[str, str] = field(default_factory=dict)
    """Resources of the accelerator: both the request and the limit."""


def placement_of(accelerator: Accelerator) -> Placement:
    """Return the placement of a pod on one host of *accelerator*."""
    match accelerator:
        case Cpu():
            placement = Placement()
        case Gpu():
            # Without the count, a job with one GPU may occupy a machine with eight.
            placement = Placement(
                selector={_GPU_TYPE: accelerator.label, COUNT: str(accelerator.count)},
                tolerations=[tolerate(GPU)],
                resources={GPU: str(accelerator.count)},
            )
            if accelerator.arm64:
                placement.selector[_ARCHITECTURE] = "arm64"
                placement.tolerations.append(tolerate(_ARCHITECTURE, "arm64"))
        case Tpu():
            # Topology and number of chips determine the machine type of a slice on one host: a container
            # must request all chips of its machine.
            placement = Placement(
                selector={_TPU_TYPE: accelerator.label, _TPU_TOPOLOGY: accelerator.topology},
                tolerations=[tolerate(TPU)],
                resources={TPU: str(accelerator.chips_per_host)},
            )
    if accelerator.spot:
        # GKE sets the label; the creator of the node pool may add the taint.
        placement.selector[SPOT] = "true"
        placement.tolerations.append(tolerate(SPOT, "true"))
    return placement


def accelerator_environment(
    accelerator: Accelerator, semantics: Literal["gke", "pathways"]
) -> dict[str, str]:
    """Return the variables by which Keras and JAX use *accelerator*, unless the user sets them.

    JAX fails if one of the platforms in `JAX_PLATFORMS` is missing: it never falls back to the processor.
    """
    if semantics == "pathways":
        platforms = "proxy"
    else:
        platforms = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}[accelerator.kind]
    return {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": platforms}


def tolerate(key: str, value: str | None = None) -> Manifest:
    """Render the toleration of the taint *key* that keeps pods away; *value*: only with that value."""
    if value is None:
        return {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
