"""`kinetic profile unset`."""

from __future__ import annotations

import click

from kinetic_cli.app import App


@click.command("unset")
@click.pass_obj
def command(app: App) -> None:
    """Make no profile current; the profiles stay."""
    from kinetic.settings.profiles import unset_profile

    unset_profile(app.profiles_path())
    app.output.line("No profile is current.")
