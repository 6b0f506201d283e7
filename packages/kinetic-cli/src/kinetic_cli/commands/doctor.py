"""`kinetic doctor`: what is wrong with a cluster, and the line that fixes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import config_option, json_option, target_options
from kinetic_cli.plans import cluster_options


@click.command("doctor")
@config_option
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, config: dict[str, Any], as_json: bool) -> None:
    """Look at everything that jobs on a cluster need, and say what fixes it.

    It changes nothing. The exit code is 0 only if nothing failed.
    """
    from kinetic.provisioning.doctor import diagnose

    settings = app.settings(config)
    checks = diagnose(settings, cluster_options(config))
    if as_json:
        app.output.json([asdict(check) for check in checks])
    else:
        app.output.table(
            ["check", "state", "seen"],
            ((check.name, check.state, check.message) for check in checks),
        )
        for fix in dict.fromkeys(check.fix for check in checks if check.fix):
            names = [check.name for check in checks if check.fix == fix]
            what = names[0] if len(names) == 1 else f"{len(names)} checks"
            app.output.warn(f"{what}: {fix}")
        count = {state: sum(check.state == state for check in checks) for state in ("fail", "warn")}
        app.output.note(f"{count['fail']} failed, {count['warn']} warnings.")
    if any(check.state == "fail" for check in checks):
        raise click.exceptions.Exit(1)
