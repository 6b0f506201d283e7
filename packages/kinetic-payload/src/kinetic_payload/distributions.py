"""The distribution name of each import package of Kinetic."""

from __future__ import annotations

from typing import Final

# Written by dev/distributions.py from [tool.kinetic-workspace.distributions] of the root pyproject.toml.
DISTRIBUTIONS: Final[dict[str, str]] = {
    "kinetic": "kinetic",
    "kinetic_cli": "kinetic-cli",
    "kinetic_images": "kinetic-images",
    "kinetic_k8s": "kinetic-k8s",
    "kinetic_payload": "kinetic-payload",
    "kinetic_runner": "kinetic-runner",
}
"""Import package → distribution name. On an index, such a name may belong to an unrelated package:
never install a package of Kinetic from an index by its name."""
