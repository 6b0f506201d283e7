"""How a command ends: exceptions → a message, a hint and an exit code."""

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
"""128 + SIGINT, as shells have it."""


@contextmanager
def ended_well(ctx: click.Context) -> Iterator[None]:
    """Let nothing out but click's own exceptions; errors are said, and tracebacks of ours kept in."""
    try:
        yield
        _output(ctx).flush()
    except (click.ClickException, click.exceptions.Exit):
        raise
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(0) from None
    except (KeyboardInterrupt, click.Abort):
        _output(ctx).note("Interrupted.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(ctx.obj, App) and ctx.obj.debug:
            raise
        _output(ctx).failure(error)
        raise click.exceptions.Exit(FAILED) from None


def _output(ctx: click.Context) -> Output:
    return ctx.obj.output if isinstance(ctx.obj, App) else Output()


def _discard_stdout() -> None:
    """Whoever read our output has had enough, which is no failure: say nothing more."""
    try:
        # Otherwise the interpreter's last flush would fail again and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return
