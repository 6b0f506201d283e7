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
        "report",
        "debug",
        "replay",
        "exec",
        "shell",
        "cancel",
        "cleanup",
    ),
    other_names={
        "ls": "kinetic jobs list",
        "ps": "kinetic jobs list",
        "rm": "kinetic jobs cleanup JOB_ID",
        "delete": "kinetic jobs cleanup JOB_ID",
        "stop": "kinetic jobs cancel JOB_ID",
        "kill": "kinetic jobs cancel JOB_ID",
        "attach": "kinetic jobs logs --follow JOB_ID; in Python: kinetic.attach(JOB_ID)",
        "describe": "kinetic jobs status JOB_ID",
    },
)
def command() -> None:
    """List, watch, collect, report, debug and stop jobs."""
