"""`kinetic profile ls`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options


@click.command("ls")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """List the profiles; `*` marks the current one."""
    known = app.profiles()
    rows = [
        {**known.profiles[name].facts(), "current": name == known.current}
        for name in sorted(known.profiles)
    ]
    if as_json:
        app.output.json(rows)
    elif not rows:
        app.output.note("No profiles. Make one with: kinetic profile create NAME")
    else:
        columns = ["name", "project", "zone", "cluster", "namespace", "backend", "kube_context"]
        app.output.table(
            ["current", *(column.replace("_", " ") for column in columns)],
            (("*" if row["current"] else "", *(row[column] for column in columns)) for row in rows),
        )
