"""What each of several hosts learns from its environment: its own index, and how to reach the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kinetic_k8s.manifests.pod import PodSpec
from kinetic_payload.layout import Env

COORDINATOR_PORT: Final = 8482
"""The default port of `jax.distributed`."""
_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def with_hosts(
    pod: PodSpec,
    names: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> PodSpec:
    """Return *pod* as one of the hosts whose names in DNS are *names*, in their order.

    *variables* and *fields* are added to its environment, as `PodSpec.environment` and
    `PodSpec.field_variables`.
    """
    environment = {
        **pod.environment,
        Env.COORDINATOR: f"{names[0]}:{COORDINATOR_PORT}",
        Env.HOST_NAMES: ",".join(names),
        **(variables or {}),
    }
    from_fields = {**pod.field_variables, Env.HOST_INDEX: _INDEX, **(fields or {})}
    return replace(pod, environment=environment, field_variables=from_fields)
