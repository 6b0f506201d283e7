"""Accelerators, manifests and clusters."""

__version__ = "0.1.0"
