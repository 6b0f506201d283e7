"""`kinetic status`: a cluster at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kinetic_cli.app import App
from kinetic_cli.commands.jobs.list import listed_jobs, print_costs, public
from kinetic_cli.options import json_option, target_options

if TYPE_CHECKING:
    from kinetic.provisioning.status import ClusterStatus
    from kinetic.settings.settings import Settings


@click.command("status")
@click.option(
    "--cost", is_flag=True, help="Show what jobs cost, too, as `jobs list --cluster --cost` does."
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, cost: bool, as_json: bool) -> None:
    """Show a cluster: its state and version, its jobs by state, its pools, and machines that idle."""
    from kinetic.backends.registry import CLUSTER
    from kinetic.provisioning.status import cluster_status
    from kinetic_k8s.manifests.releases import JOBSET

    app.print_warnings()
    settings = app.settings()
    found = cluster_status(settings)
    gke = found.gke
    idle = _idle(settings, found)
    jobs = [] if not cost else listed_jobs(app, app.settings(backend=CLUSTER), cost=True)
    if as_json:
        app.output.json(
            {
                "cluster": found.identity,
                "status": gke.status if gke else None,
                "version": gke.version if gke else None,
                "autopilot": gke.autopilot if gke else None,
                "jobs": dict(found.jobs),
                "pools": [
                    {
                        "name": each.pool.name,
                        "nodes": each.nodes,
                        "min_nodes": each.pool.min_nodes,
                        "jobs": each.used_by,
                        "priorities": [str(priority) for priority in each.priorities],
                    }
                    for each in found.pools
                ],
                "idle": idle,
                "jobset": found.jobset,
                **({"costs": [public(job) for job in jobs]} if cost else {}),
            }
        )
        return
    kind = None if gke is None else "Autopilot" if gke.autopilot else "Standard"
    app.output.facts(
        [
            ("Cluster", found.identity),
            ("Status", gke and gke.status),
            ("Version", gke and f"{gke.version}, {kind}"),
            ("JobSet", _jobset(found.jobset, JOBSET.version)),
            (
                "Jobs",
                ", ".join(f"{count} {state}" for state, count in found.jobs.items()) or "none",
            ),
        ]
    )
    if found.pools:
        app.output.table(
            ["pool", "nodes", "jobs", "machines"],
            (
                (
                    each.pool.name,
                    each.nodes,
                    len(each.used_by),
                    ", else ".join(map(str, each.priorities)),
                )
                for each in found.pools
            ),
        )
    for line in idle:
        app.output.note(line)
    if cost:
        print_costs(app, jobs)


def _jobset(version: str | None, ours: str) -> str:
    if version is None:
        return "not known: you may not read its definition"
    if not version:
        return "not installed by Kinetic"
    return version if version == ours else f"{version}; this Kinetic brings {ours}: kinetic up"


def _idle(settings: Settings, found: ClusterStatus) -> list[str]:
    """Return what is billed and runs no job, as sentences; no prices are asked for."""
    from kinetic.provisioning.prices import known_prices

    prices = known_prices(settings, ask=False, location=found.gke.location if found.gke else None)
    lines = []
    for status in found.idle:
        price = prices.of(status.pool.priorities[0])
        slices = (status.nodes or 0) / status.pool.accelerator.hosts
        rate = f"${price.per_hour * slices:,.2f} an hour" if price else "at an unknown price"
        lines.append(
            f"{status.nodes} machines of the pool {status.pool.name} are billed and run no job: {rate}."
        )
    return lines
