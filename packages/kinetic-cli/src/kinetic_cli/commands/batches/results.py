"""`kinetic batches results`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import Seconds, json_option, target_options
from kinetic_cli.output import error_document
from kinetic_cli.values import text_of, value_document


@click.command("results")
@click.argument("group_id")
@click.option(
    "--timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time; the batch goes on.  [default: wait for ever]",
)
@click.option(
    "--cleanup",
    is_flag=True,
    help="Remove resource and artifacts once all values are printed, if no input failed.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, group_id: str, timeout: float | None, cleanup: bool, as_json: bool) -> None:
    """Wait for a batch and print its values.

    They are printed in the order of the inputs, as they arrive. Each line has the index of an input and the repr of
    its value; with --json, each is a document. Failures follow after all values, and the exit code is then 1.
    """
    from kinetic.errors import BatchError

    batch = app.attach_batch(group_id)

    def document(index: int, **known: object) -> None:
        unknown = dict.fromkeys(("type", "value", "repr", "error"))
        app.output.json({"input": index, **unknown, **known}, lines=True)

    try:
        for index, value in batch.iter_results(timeout=timeout):
            if as_json:
                document(index, **value_document(value))
            else:
                app.output.line(f"{index}  {text_of(value)[0]}", flush=True)
        app.output.flush()
    except KeyboardInterrupt:
        again = f"kinetic batches results {group_id}"
        app.output.note(f"Stopped waiting; the batch is left alone. Come back with: {again}")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BatchError as failed:
        for index, error in failed.exceptions.items() if as_json else ():
            document(index, error=error_document(error))
        failed.hint = f"Show all failures with: kinetic batches status {group_id}"
        raise
    if cleanup:
        batch.cleanup()
        app.output.note(f"Removed {group_id}.")
    else:
        app.output.note(f"{group_id} is kept. To remove it: kinetic batches cleanup {group_id}")
