"""`kinetic batches`: batches that any process on any machine has submitted."""

from __future__ import annotations

import click

from kinetic_cli.lazy_group import LazyGroup


@click.group(
    "batches",
    cls=LazyGroup,
    package=__name__,
    verbs=("list", "status", "results", "logs", "cancel", "retry", "resume", "cleanup"),
)
def command() -> None:
    """List, watch, collect and stop batches: many calls of one function."""
