"""The command `kinetic`: its root group and its entry point."""

from __future__ import annotations

import sys
from typing import Any

import click

from kinetic_cli.app import App, TargetOptions
from kinetic_cli.exit_code import discard_what_cannot_be_printed, errors_as_exit_codes
from kinetic_cli.lazy_group import LazyGroup
from kinetic_cli.options import target_options
from kinetic_cli.output import Output


class Root(LazyGroup):
    """The root of all commands, which turns errors into exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and translate its exceptions."""
        with errors_as_exit_codes(ctx):
            return super().invoke(ctx)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import kinetic
    import kinetic_cli

    python = ".".join(map(str, sys.version_info[:3]))
    Output().line(
        f"kinetic {kinetic.__version__} (kinetic-cli {kinetic_cli.__version__}, Python {python})"
    )
    ctx.exit()


@click.group(
    cls=Root,
    package="kinetic_cli.commands",
    verbs=(
        "run",
        "jobs",
        "batches",
        "dashboard",
        "init",
        "up",
        "down",
        "status",
        "doctor",
        "pool",
        "storage",
        "profile",
        "config",
        "accelerators",
        "build-image",
        "completion",
    ),
    other_names={
        "logs": "kinetic jobs logs JOB_ID",
        "ps": "kinetic jobs list",
        "ls": "kinetic jobs list",
        "cancel": "kinetic jobs cancel JOB_ID",
        "stop": "kinetic jobs cancel JOB_ID",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@target_options()
@click.option("--debug", is_flag=True, help="Show the traceback of whatever fails.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions and exit.",
)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Run Python functions on accelerators: manage jobs, batches, pools, storage, profiles and settings."""
    if ctx.obj is None:
        ctx.obj = App(Output())
    ctx.obj.target = TargetOptions.of(ctx)
    ctx.obj.debug = debug
    ctx.call_on_close(ctx.obj.close)


def main() -> None:
    """Run `kinetic` with the arguments of this process."""
    for stream in (sys.stdout, sys.stderr):
        # A job may print any text; a terminal that cannot show it must not cause a failure.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        cli(prog_name="kinetic")
    except OSError as error:
        # Not even the help could be printed.
        Output().failure(error)
        discard_what_cannot_be_printed()
        sys.exit(1)
