"""Validate `pod_overrides`: parts of a pod template that are merged into that of a job's pods."""

from __future__ import annotations

from typing import Any

from kinetic.errors import InvalidRequestError


def check_pod_overrides(value: object) -> dict[str, Any]:
    """Return a copy of *value*.

    Raises:
        InvalidRequestError: It is not JSON, or sets a field that belongs to Kinetic.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(
            f"pod_overrides={value!r} is not a dict.",
            hint="Write pod_overrides={'spec': {'priorityClassName': 'batch'}}.",
        )
    from kinetic_k8s.manifests.overrides import check_overrides

    return check_overrides(value)
