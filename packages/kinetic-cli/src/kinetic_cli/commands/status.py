"""`kinetic status`: a cluster at a glance."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options


@click.command("status")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """Show a cluster: its state and version, its jobs by state, its pools, and machines that idle."""
    from kinetic.provisioning.status import cluster_status

    app.print_warnings()
    found = cluster_status(app.settings())
    gke = found.gke
    idle = [
        f"{status.nodes} machines of the pool {status.pool.name} are billed and run no job."
        for status in found.idle
    ]
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
            }
        )
        return
    kind = None if gke is None else "Autopilot" if gke.autopilot else "Standard"
    app.output.facts(
        [
            ("Cluster", found.identity),
            ("Status", gke and gke.status),
            ("Version", gke and f"{gke.version}, {kind}"),
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
