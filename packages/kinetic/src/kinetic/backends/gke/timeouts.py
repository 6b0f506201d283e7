"""Timeouts of requests to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinetic_payload.stores.outages import current_limit

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

_LONGEST: Final = 60.0
"""Timeout of a request in seconds, unless the caller's time limit is shorter."""
_SHORT: Final = 10.0
"""Timeout of a request that only observes: a wait repeats it, and must keep its own deadline."""


def with_timeout(cluster: ApiServer) -> ApiServer:
    """Return *cluster* with the timeout of requests that change something.

    If the block has a time limit for requests to stores, the timeout is at most that limit.
    """
    return _within(cluster, _LONGEST)


def with_short_timeout(cluster: ApiServer) -> ApiServer:
    """Return *cluster* with the timeout of requests that only observe."""
    return _within(cluster, _SHORT)


def _within(cluster: ApiServer, longest: float) -> ApiServer:
    limit = current_limit()
    return cluster.within(longest if limit is None else limit.at_most(longest))
