"""Clusters: the operations that Kinetic needs, as requests to an API server."""

from kinetic_k8s.cluster.cluster import Cluster, Identity

__all__ = ["Cluster", "Identity"]
