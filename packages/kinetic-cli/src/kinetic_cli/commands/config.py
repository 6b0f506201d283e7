"""`kinetic config`."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options


@click.command("config")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """Show every setting with its value and where it comes from."""
    resolved = app.settings()
    settings = {
        each.name: _facts(each.name, getattr(resolved, each.name)) for each in fields(resolved)
    }
    if as_json:
        app.output.json(settings)
    else:
        app.output.table(
            ["setting", "value", "source"],
            ((name, _text(facts["value"]), facts["source"]) for name, facts in settings.items()),
        )


def _text(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def _facts(name: str, setting: Any) -> dict[str, Any]:
    value = str(setting.value) if isinstance(setting.value, Path) else setting.value
    return {
        "value": value,
        "source": f"--{name}" if setting.source == "argument" else setting.source,
    }
