"""Options and arguments that several commands share."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kinetic_cli.app import App, TargetOptions

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_TARGET: Final = {
    "profile": "Profile to take settings from, for this command.",
    "project": "GCP project.",
    "zone": "GCP zone.",
    "cluster": "GKE cluster.",
    "namespace": "Kubernetes namespace.",
}


class AttemptNumber(click.IntRange):
    """The number of an attempt, or `all`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a number, or `all`; fail if it is neither."""
        return value if value == "all" else super().convert(value, param, ctx)


class Age(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A number of weeks, days or hours: `30d`."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return *value* as a duration; fail if it is not one."""
        if isinstance(value, timedelta):
            return value
        found = _duration(value, "wdh")
        if found is None:
            self.fail(f"{value!r} is not an age. Write 30d, 2w or 12h.", param, ctx)
        return found


def _duration(value: object, units: str) -> timedelta | None:
    """Return a number with one of *units* after it, such as `30d`, as a duration; None if it is none."""
    names = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
    found = re.fullmatch(f"([0-9]{{1,5}})([{units}])", str(value))
    return timedelta(**{names[found[2]]: int(found[1])}) if found else None


class Since(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A date, a time, or how long ago: `2026-11-20`, `2026-11-20T15:30`, `2h`, `3d`. Without a zone, it is local time."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return *value* as a time; fail if it is not one."""
        if isinstance(value, datetime):
            return value
        if ago := _duration(value, "wdhms"):
            now = ctx.obj.clock() if ctx else 0.0
            return datetime.fromtimestamp(now, UTC) - ago
        try:
            return datetime.fromisoformat(str(value)).astimezone()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time. Write 2h, 3d or 2026-11-20.", param, ctx)


class JsonObject(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """An object of JSON: the text itself, or the path of a file with it."""

    name = "json"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Return *value* as a dict; fail if it is not an object."""
        if isinstance(value, dict):
            return value
        text = str(value)
        if not text.lstrip().startswith("{"):
            try:
                text = Path(text).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                self.fail(f"The file '{value}' cannot be read: {error}.", param, ctx)
        try:
            found = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            self.fail(f"'{value}' is not valid JSON: {error}.", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"'{value}' is not an object of JSON.", param, ctx)
        return found


class NewFilePath(click.Path):
    """The path of a new file, in a folder to which the user may write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return *value* as a path; fail if no new file can be written there."""
        path = Path(value)
        if value == "-":
            self.fail("'-' is not a file. For a file of that name, write ./-", param, ctx)
        if path.is_dir():
            self.fail(f"'{value}' is a folder. Name a file in it.", param, ctx)
        if os.path.lexists(path):
            self.fail(f"'{value}' exists already. Name another file, or remove it.", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"There is no folder '{path.parent}'.", param, ctx)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            self.fail(f"You may not write to the folder '{path.parent}'.", param, ctx)
        return path


def target_options(*, hidden: bool = False, without: str = "") -> Callable[[F], F]:
    """Add `--profile`, `--project`, `--zone`, `--cluster`, `--namespace` and `--quiet`.

    The root command shows them in its help. Other commands accept them too, so that they may appear anywhere
    on the command line. *without* omits the one that the command defines itself.
    """

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value and param.name:
            TargetOptions.of(ctx).given[param.name] = value

    def be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            TargetOptions.of(ctx).given["progress"] = "off"
            ctx.ensure_object(App).output.quiet = True

    def add(function: F) -> F:
        function = click.option(
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=be_quiet,
            hidden=hidden,
            help="Print only errors and warnings on stderr.",
        )(function)
        for name, text in reversed(_TARGET.items()):
            if name == without:
                continue
            function = click.option(
                f"--{name}",
                metavar="NAME",
                expose_value=False,
                callback=remember,
                hidden=hidden,
                help=text,
                shell_complete=_complete_profiles if name == "profile" else None,
            )(function)
        return function

    return add


def place_options(function: F) -> F:
    """Add `--local` and `--cluster`, which choose the place."""
    function = click.option(
        "--cluster",
        is_flag=False,
        # `--cluster` without a name means the cluster of the settings.
        flag_value="",
        metavar="[NAME]",
        help="Only the cluster.",
    )(function)
    return click.option("--local", is_flag=True, help="Only this machine.")(function)


def place_settings(app: App, local: bool, cluster: str | None) -> Settings:
    """Return the settings with the backend that the options `--local` and `--cluster` name."""
    from kinetic.backends.registry import CLUSTER, LOCAL

    if local and cluster is not None:
        raise click.UsageError("--local and --cluster exclude each other.")
    if cluster:
        app.target.given["cluster"] = cluster
    return app.settings(backend=LOCAL if local else CLUSTER if cluster is not None else None)


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys.")(
        function
    )


def job_id_argument(function: F) -> F:
    """Add the argument `JOB_ID`, which a shell completes from the jobs of this machine."""
    return click.argument("job_id", shell_complete=complete_jobs)(function)


def profile_argument(*, required: bool = True) -> Callable[[F], F]:
    """Add the argument `NAME` of a profile, which a shell completes."""
    return click.argument("name", required=required, shell_complete=_complete_profiles)


def config_option(function: F) -> F:
    """Add `--config`: the keys of that file, else of `kinetic.toml` in this folder, else none."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, Any]:
        from kinetic.settings.project_file import NAME, read_project_file

        return read_project_file(Path(value or NAME)) if value or os.path.lexists(NAME) else {}

    return click.option(
        "--config",
        metavar="FILE",
        callback=read,
        help="A file with options of your project.  [default: kinetic.toml, if it is here]",
    )(function)


def deletion_options(function: F) -> F:
    """Add `--cleanup-timeout` and `--cleanup-poll-interval`."""
    function = click.option(
        "--cleanup-poll-interval",
        type=click.FloatRange(min=0, min_open=True),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="Time between checks during that wait.",
    )(function)
    return click.option(
        "--cleanup-timeout",
        type=click.FloatRange(min=0),
        default=180.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait until the resource is gone.",
    )(function)


def complete_jobs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of jobs of this machine that begin with *incomplete*."""
    try:
        from kinetic.backends.registry import LOCAL
        from kinetic.jobs.discover import find_jobs

        jobs = find_jobs(App().settings(backend=LOCAL))
    except Exception:  # noqa: BLE001 - errors must not appear while a shell completes
        return []
    return [job.job_id for job in jobs if job.job_id.startswith(incomplete)]


def complete_accelerators(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[str]:
    """Return the names of accelerators that begin with *incomplete*."""
    from kinetic_k8s.accelerators import catalogue, names_of

    names = (name for each in catalogue() for name in names_of(each))
    return [name for name in names if name.startswith(incomplete.lower())]


def _complete_profiles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    try:
        profiles = App().profiles().profiles
    except Exception:  # noqa: BLE001 - as above
        return []
    return [name for name in profiles if name.startswith(incomplete)]


def ask(question: str, *, otherwise: str, hint: str) -> None:
    """Ask whether to go on; an answer of no ends the command.

    Raises:
        InvalidRequestError: There is no terminal; *otherwise* is its message.
    """
    from kinetic.errors import InvalidRequestError

    if not sys.stdin.isatty():
        raise InvalidRequestError(otherwise, hint=hint)
    click.confirm(question, abort=True, err=True)
