"""`kinetic profile rm`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import profile_argument


@click.command("rm")
@profile_argument()
@click.pass_obj
def command(app: App, name: str) -> None:
    """Remove the profile NAME. If it was the current one, no profile is current."""
    from kinetic.settings.profiles import remove_profile

    left = remove_profile(app.profiles_path(), name)
    none = " No profile is current." if left.profiles and left.current is None else ""
    app.output.line(f"Removed profile {name}.{none}")
