"""How long a request to the cluster may take, which the operation it belongs to decides."""

from __future__ import annotations

from typing import Final

from kinetic_k8s.cluster.cluster import Cluster
from kinetic_payload.outages import current_limit

_LONGEST: Final = 60.0
"""Seconds, where nothing else is asked for."""


def in_time(cluster: Cluster) -> Cluster:
    """Return *cluster*, whose calls give up as early as those to the store do in this block."""
    limit = current_limit()
    return cluster if limit is None else cluster.within(limit.at_most(_LONGEST))
