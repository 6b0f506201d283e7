"""`kinetic profile`: named sets of project, zone, cluster and the like."""

from __future__ import annotations

import click

from kinetic_cli.lazy_group import LazyGroup


@click.group(
    "profile",
    cls=LazyGroup,
    package=__name__,
    verbs=("create", "ls", "use", "unset", "show", "rm"),
)
def command() -> None:
    """Keep sets of settings, and choose among them."""
