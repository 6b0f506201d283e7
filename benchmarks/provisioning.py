"""Looking at a cluster on Google Cloud: every service takes 40 ms for each request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from figures import Budget, Figure
from measuring import Bench, by_name

from kinetic_servers.google import GoogleCloud

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / ".ci"), str(ROOT / "tests" / "cluster")]

from bed import control_plane  # noqa: E402
from tiers import obstacle  # noqa: E402 - what CI asks as well

DELAY = 0.04


def left_out() -> str | None:
    """Return why a run that does not name this group leaves it out, or None."""
    return obstacle()


def figures(bench: Bench) -> Iterator[Figure]:
    if (why := obstacle()) is not None:
        raise SystemExit(f"The group `provisioning` cannot be measured: {why}.")
    with control_plane("bench") as bed:
        ca = Path(bed.environment["KUBE_BED_CA"]).read_text()
        server = bed.environment["KUBE_BED_SERVER"]
        with GoogleCloud(
            bench.folder / "google", api_server=lambda _: (server, ca), token="kube-bed-admin"
        ) as cloud:
            cloud.add_project("bench-project", number=1)
            named = {
                **cloud.environment,
                "KINETIC_PROJECT": "bench-project",
                "KINETIC_ZONE": "us-central1",
                "KINETIC_BACKEND": "",
            }
            target = ("up", "--yes", "--accelerator", "cpu")
            bench.python("-m", "kinetic_cli", *target, variables=named)
            cloud.delay = DELAY
            cloud.compute.faults.add(delay=DELAY)
            cloud.buckets.faults.add(delay=DELAY)
            found = by_name(bench.client("provisioning", bench.rounds(9), variables=named))
    for name, what in (
        ("up", "`kinetic up` with nothing to do"),
        ("doctor", "`kinetic doctor`"),
        ("status", "`kinetic status`"),
    ):
        yield Figure(
            what=f"{what}, 40 ms for each request to Google",
            samples=found[name],
            floor="the longest chain of its requests, by bare clients",
            floor_samples=found[f"{name} floor"],
            budgets=(Budget(1.5, "ratio"),),
        )
