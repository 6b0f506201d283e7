"""Clusters: the operations that Kinetic needs, as requests to an API server."""

from kinetic_k8s.cluster.translation import Identity

__all__ = ["Identity"]
