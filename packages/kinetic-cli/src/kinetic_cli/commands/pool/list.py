"""`kinetic pool list`."""

from __future__ import annotations

from dataclasses import asdict

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options


@click.command("list")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """List the pools of a cluster: their machines, what GKE reports of them, and the jobs that use them."""
    from kinetic.provisioning.pools import list_pools

    app.print_warnings()
    pools = list_pools(app.settings())
    if as_json:
        app.output.json(
            [
                {
                    "name": status.pool.name,
                    "accelerator": str(status.pool.accelerator),
                    "priorities": [asdict(priority) for priority in status.priorities],
                    "min_nodes": status.pool.min_nodes,
                    "nodes": status.nodes,
                    "jobs": status.used_by,
                    "problem": status.problem or None,
                }
                for status in pools
            ]
        )
        return
    if not pools:
        app.output.note("No pools. Add one with: kinetic pool add --accelerator NAME")
        return
    app.output.table(
        ["pool", "nodes", "min", "jobs", "machines"],
        (
            (
                status.pool.name,
                status.nodes,
                status.pool.min_nodes,
                len(status.used_by),
                ", else ".join(map(str, status.priorities)),
            )
            for status in pools
        ),
    )
    for status in pools:
        if status.problem:
            app.output.note(f"GKE cannot use the pool {status.pool.name}: {status.problem}")
