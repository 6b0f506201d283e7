"""Manifests: frozen specs rendered to the plain dicts that Kubernetes accepts."""

from typing import Any

Manifest = dict[str, Any]
"""An object of Kubernetes as JSON."""
