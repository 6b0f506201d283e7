"""Print the speed of Kinetic against its budgets: `python benchmarks/run.py [NAME …]`.

Every figure stands beside a floor that is measured in turns with it, so that a slow or busy machine
does not change the ratio. The table has medians, with the best round in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator

import batches
import building_images
import calling
import cluster
import finding
import hashing
import image_modes
import listing
import memory
import moving
import packaging_trees
import provisioning
import running
import starting
import submitting
from figures import Figure, table
from measuring import Bench, scratch

from kinetic_payload.threads import cores

GROUPS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "starting": starting.figures,
    "submitting": submitting.figures,
    "calling": calling.figures,
    "running": running.figures,
    "batches": batches.figures,
    "packaging": packaging_trees.figures,
    "finding": finding.figures,
    "hashing": hashing.figures,
    "memory": memory.figures,
    "moving": moving.figures,
    "listing": listing.figures,
    "images": building_images.figures,
    "provisioning": provisioning.figures,
    "cluster": cluster.figures,
    "modes": image_modes.figures,
}

LEFT_OUT: dict[str, Callable[[], str | None]] = {
    "images": building_images.left_out,
    "cluster": cluster.left_out,
    "provisioning": provisioning.left_out,
    "modes": cluster.left_out,
}
"""Groups that cannot be measured everywhere, and what returns why a run that names no group leaves them out."""

IN_MEMORY = frozenset({"running", "calling", "packaging", "hashing", "moving"})
"""Groups in which the time of the disk would hide Kinetic's. Other groups use the disk, as users do."""


def main() -> int:
    """Run the groups that the arguments name, or the default; return 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument("--json", action="store_true", help="print all samples, as JSON")
    parser.add_argument("--quick", action="store_true", help="small inputs, few rounds")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(GROUPS)
    if unknown:
        parser.error(
            f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}"
        )
    found: list[Figure] = []
    for name in arguments.names or _default_groups():
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        with scratch(in_memory=name in IN_MEMORY) as folder:
            found += GROUPS[name](Bench(folder, arguments.quick))
    machine = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 1),  # Includes the benchmark's own load.
    }
    if arguments.json:
        print(json.dumps({**machine, "figures": [figure.as_json() for figure in found]}, indent=1))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine.items()), end="\n\n")
        print(table(figure.row() for figure in found))
    return 1 if any(figure.verdict == "over" for figure in found) else 0


def _default_groups() -> list[str]:
    """Return all groups without those that cannot be measured here."""
    reasons = {name: reason() for name, reason in LEFT_OUT.items()}
    for name, why in reasons.items():
        if why is not None:
            print(f"left out: {name}: {why}", file=sys.stderr)
    return [name for name in GROUPS if reasons.get(name) is None]


if __name__ == "__main__":
    sys.exit(main())
