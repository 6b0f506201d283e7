"""`kinetic jobs`: jobs that any process on any machine has submitted."""

from __future__ import annotations

import click

from kinetic_cli.lazy_group import LazyGroup


@click.group(
    "jobs",
    cls=LazyGroup,
    package=__name__,
    verbs=(
        "list",
        "status",
        "logs",
        "top",
        "result",
        "debug",
        "replay",
        "exec",
        "shell",
        "cancel",
        "cleanup",
    ),
)
def command() -> None:
    """List, watch, collect, debug and stop jobs."""
