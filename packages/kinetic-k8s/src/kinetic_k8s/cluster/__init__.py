"""Clusters: the few operations that Kinetic needs, and the API server that does them."""

from kinetic_k8s.cluster.cluster import Cluster, Identity

__all__ = ["Cluster", "Identity"]
