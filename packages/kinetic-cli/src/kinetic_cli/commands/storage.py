"""`kinetic storage`: what is stored on this machine and in the buckets of a cluster, and its removal."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from kinetic_cli.app import App
from kinetic_cli.lazy_group import Group
from kinetic_cli.options import Age, ask, json_option, place_options, place_settings, target_options
from kinetic_cli.output import age_text

if TYPE_CHECKING:
    from kinetic.storage.prune import Removal
    from kinetic.storage.report import Stored

_OUTPUTS: Final = "Outputs are what your functions have written. Nothing makes them again. Remove those of {jobs}?"


@click.group("storage", cls=Group, invoke_without_command=True)
@place_options
@target_options(hidden=True, without="cluster")
@json_option
@click.pass_context
def command(ctx: click.Context, local: bool, cluster: str | None, as_json: bool) -> None:
    """Show what is stored, how much, since when, and when it is deleted by itself."""
    app: App = ctx.obj
    if ctx.invoked_subcommand is not None:
        if local or cluster is not None or as_json:
            raise click.UsageError(f"Write the options after `{ctx.invoked_subcommand}`.")
        return
    from kinetic.storage.report import stored

    app.print_warnings()
    rows = stored(place_settings(app, local, cluster))
    if as_json:
        app.output.json([_document(row) for row in rows])
    elif not rows:
        app.output.note("Nothing is stored.")
    else:
        heads = ["what", "items", "size", "oldest", "newest", "deleted after", "place"]
        app.output.table(heads, (_cells(row, app.clock()) for row in rows))


@command.command("prune")
@place_options
@click.option("--contexts", is_flag=True, help="Snapshots of projects.")
@click.option("--data", is_flag=True, help="Uploaded data, with their markers.")
@click.option("--logs", is_flag=True, help="Stored logs of jobs that have ended.")
@click.option("--jobs", is_flag=True, help="Records and values of jobs that have ended.")
@click.option("--outputs", is_flag=True, help="What jobs wrote below KINETIC_OUTPUT_DIR.")
@click.option("--caches", is_flag=True, help="Environments, wheels and the like of this machine.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    help="Only what was not used, or had ended, for so long: 30d, 2w, 12h.",
)
@click.option("--all-ages", is_flag=True, help="However young it is.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@target_options(hidden=True, without="cluster")
@json_option
@click.pass_context
def prune(
    ctx: click.Context,
    /,
    local: bool,
    cluster: str | None,
    older_than: timedelta | None,
    all_ages: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **chosen: bool,
) -> None:
    """Remove what is named. What a job needs that has not ended stays.

    On a bucket, removed objects can be restored for as long as its soft delete policy says.
    """
    from kinetic.errors import InvalidRequestError
    from kinetic.storage.prune import KINDS, PruneOptions, prepare_prune

    kinds = [kind for kind in KINDS if chosen[kind]]
    if not kinds:
        raise click.UsageError(f"Name what to remove: {', '.join(f'--{kind}' for kind in KINDS)}.")
    if (older_than is None) is not all_ages:
        raise click.UsageError("Say how old it must be: --older-than AGE, or --all-ages.")
    app: App = ctx.obj
    app.print_warnings()
    options = PruneOptions(kinds=kinds, older_than=older_than)
    pruning = prepare_prune(place_settings(app, local, cluster), options)
    if local and pruning.location.kind == "gs" and kinds != ["caches"]:
        raise InvalidRequestError(
            f"Nothing was removed: jobs of this machine are in {pruning.location}, and others may use it.",
            hint="Remove objects from the bucket with --cluster, and --caches by a command of their own.",
        )
    found = any(removal.items or removal.objects for removal in pruning.plan)
    if not as_json:
        rows = ((each.what, each.items, each.objects, _size(each.size)) for each in pruning.plan)
        app.output.table(["what", "items", "objects", "size"], rows)
    removed = pruning.plan
    if found and not dry_run:
        if not yes:
            ask(
                f"Remove it from {pruning.location}?",
                otherwise="Nothing was removed: there is no terminal to ask on.",
                hint="Run the command with --yes, or with --dry-run to see only what would go.",
            )
            for each in pruning.plan:
                if each.what == "outputs" and each.items:
                    jobs = "1 job" if each.items == 1 else f"{each.items} jobs"
                    click.confirm(_OUTPUTS.format(jobs=jobs), abort=True, err=True)
        removed = pruning.apply()
    if as_json:
        facts = {"place": str(pruning.location), "dry_run": dry_run}
        kinds_removed = [_document(removal) for removal in removed]
        app.output.json({**facts, "removed": kinds_removed, "problems": pruning.problems})
    elif not dry_run:
        went = [each for each in removed if each.items or each.objects]
        gone = ", ".join(f"{each.items} of {each.what} ({_size(each.size)})" for each in went)
        app.output.line(f"Removed from {pruning.location}: {gone or 'nothing'}.")
    for problem in pruning.problems:
        app.output.warn(f"Error: not removed: {problem}")
    if pruning.problems:
        ctx.exit(1)


def _cells(row: Stored, now: float) -> tuple[object, ...]:
    ages = (age_text(max(0.0, now - when)) for when in (row.oldest, row.newest))
    after = "never" if row.expires is False else f"{row.days}d" if row.days else None
    return row.what, row.items, _size(row.size), *ages, after, row.place


def _size(size: int) -> str:
    from kinetic_payload.progress import size_text

    return size_text(size).replace(" ", "")


def _document(row: Stored | Removal) -> dict[str, Any]:
    document = asdict(row)
    document["bytes"] = document.pop("size")
    for key in ("oldest", "newest"):
        if key in document:
            document[key] = datetime.fromtimestamp(document[key], UTC).isoformat()
    if "days" in document:
        document["deleted_after_days"] = document.pop("days")
    return document
