"""`kinetic profile show`."""

from __future__ import annotations

import json

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, profile_argument, target_options


@click.command("show")
@profile_argument(required=False)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, name: str | None, as_json: bool) -> None:
    """Show the profile NAME, or the current one."""
    from kinetic.errors import ConfigurationError
    from kinetic.settings.profiles import PATHWAYS

    known = app.profiles()
    name = name or app.target.get("profile") or known.current
    if name is None:
        raise ConfigurationError(
            "No profile is current.", hint="Choose one with: kinetic profile use NAME"
        )
    facts = {**known.find(name).facts(), "current": name == known.current}
    if as_json:
        app.output.json(facts)
    else:
        facts["current"] = "yes" if facts["current"] else "no"
        if facts["pod_overrides"] is not None:
            facts["pod_overrides"] = json.dumps(facts["pod_overrides"])
        shown = {
            key: value
            for key, value in facts.items()
            if value is not None or not key.startswith(PATHWAYS)
        }
        app.output.facts((key.replace("_", " "), value) for key, value in shown.items())
