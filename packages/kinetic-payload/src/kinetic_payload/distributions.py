"""Our distributions: under which name each of our import packages is published."""

from __future__ import annotations

from typing import Final

# Written by dev/distributions.py from [tool.kinetic.distributions] of the root pyproject.toml.
DISTRIBUTIONS: Final[dict[str, str]] = {
    "kinetic": "kinetic",
    "kinetic_cli": "kinetic-cli",
    "kinetic_images": "kinetic-images",
    "kinetic_k8s": "kinetic-k8s",
    "kinetic_payload": "kinetic-payload",
    "kinetic_runner": "kinetic-runner",
}
"""Import package → distribution name. Elsewhere such a name may be a stranger's package:
none of ours is ever installed by name from an index."""
