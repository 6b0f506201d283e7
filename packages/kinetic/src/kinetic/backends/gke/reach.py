"""How long a request to the cluster may take, which the operation it belongs to decides."""

from __future__ import annotations

from typing import Final

from kinetic_k8s.cluster.cluster import Cluster
from kinetic_payload.stores.outages import current_limit

_LONGEST: Final = 60.0
"""Seconds, where nothing else is asked for."""
_LOOK: Final = 10.0
"""Seconds of what only looks: who waits for a job looks again, and has a deadline that is to count."""


def in_time(cluster: Cluster) -> Cluster:
    """Return *cluster*, whose calls give up as early as those to the store do in this block."""
    return _within(cluster, _LONGEST)


def for_a_look(cluster: Cluster) -> Cluster:
    """Return *cluster*, whose calls give up as early as what only looks does."""
    return _within(cluster, _LOOK)


def _within(cluster: Cluster, longest: float) -> Cluster:
    limit = current_limit()
    return cluster.within(longest if limit is None else limit.at_most(longest))
