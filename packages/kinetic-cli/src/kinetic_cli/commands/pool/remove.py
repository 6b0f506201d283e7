"""`kinetic pool remove`."""

from __future__ import annotations

import sys

import click

from kinetic_cli.app import App
from kinetic_cli.options import target_options

_SHOWN = 10


@click.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask if jobs run or wait there.")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, name: str, yes: bool) -> None:
    """Remove a pool. Its machines go once nothing runs on them."""
    from kinetic.errors import InvalidRequestError
    from kinetic.provisioning.pools import find_pool, remove_pool

    app.print_warnings()
    settings = app.settings()
    jobs = find_pool(settings, name).used_by
    if jobs and not yes:
        more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        used = f"Jobs run or wait in the pool {name}: {', '.join(jobs[:_SHOWN])}{more}."
        if not sys.stdin.isatty():
            raise InvalidRequestError(
                used, hint=f"Remove it all the same with: kinetic pool remove {name} --yes"
            )
        click.confirm(
            f"{used} Those that run go on, and those that wait get no machine. Remove it?",
            abort=True,
            err=True,
        )
    remove_pool(settings, name)
    app.output.line(f"Removed pool {name}.")
