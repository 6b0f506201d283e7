"""Exit codes of commands: an exception → its message, its hint and the code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kinetic_cli.app import App
from kinetic_cli.output import Output

FAILED = 1
INTERRUPTED = 130
"""128 + SIGINT, as in shells."""


@contextmanager
def errors_as_exit_codes(ctx: click.Context) -> Iterator[None]:
    """Print errors and exit with their codes; only click's own exceptions leave the block."""
    try:
        yield
        _output(ctx).flush()
    except (click.ClickException, click.exceptions.Exit):
        raise
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(0) from None
    except (KeyboardInterrupt, click.Abort):
        _output(ctx).warn("Interrupted.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(ctx.obj, App) and ctx.obj.debug:
            raise
        _output(ctx).failure(error)
        discard_what_cannot_be_printed()
        raise click.exceptions.Exit(FAILED) from None


def _output(ctx: click.Context) -> Output:
    return ctx.obj.output if isinstance(ctx.obj, App) else Output()


def discard_what_cannot_be_printed() -> None:
    """Discard output that stdout does not accept, so that it does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Discard all further output: its reader is gone, or its disk is full."""
    try:
        # Otherwise the interpreter's last flush would fail again, with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return
