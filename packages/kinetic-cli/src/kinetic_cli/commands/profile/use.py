"""`kinetic profile use`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import profile_argument


@click.command("use")
@profile_argument()
@click.pass_obj
def command(app: App, name: str) -> None:
    """Make the profile NAME the current one."""
    from kinetic.settings.profiles import use_profile

    use_profile(app.profiles_path(), name)
    app.output.line(f"Profile {name} is the current one.")
