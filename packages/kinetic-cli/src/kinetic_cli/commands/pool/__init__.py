"""`kinetic pool`: the machines that a cluster makes for jobs."""

from __future__ import annotations

import click

from kinetic_cli.lazy_group import LazyGroup


@click.group("pool", cls=LazyGroup, package=__name__, verbs=("add", "list", "remove"))
def command() -> None:
    """Say which machines a cluster makes for jobs; they cost nothing until a job asks for them."""
