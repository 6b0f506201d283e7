"""`kinetic run`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import JsonObject, complete_accelerators, target_options


def _pairs(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for text in values:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param=param)
    return {name: value for name, _, value in (text.partition("=") for text in values)}


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "--accelerator",
    required=True,
    shell_complete=complete_accelerators,
    help="What to run on: `kinetic accelerators` lists all.",
)
@click.option("--container-image", metavar="IMAGE", help='"bundled", "prebuilt" or an address.')
@click.option("--base-image-repo", metavar="HOST/PATH", help="Repository of prebuilt base images.")
@click.option("--backend", metavar="NAME", help='"gke", "pathways", or "local" for this machine.')
@click.option(
    "--capture-env-vars",
    multiple=True,
    metavar="NAME",
    help="Environment variable that the job gets, or a prefix followed by *; may be repeated.",
)
@click.option(
    "--volumes",
    multiple=True,
    callback=_pairs,
    metavar="/MOUNT=DATA",
    help="A path or URI, and where the script finds it; may be repeated.",
)
@click.option(
    "--labels", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="May be repeated."
)
@click.option("--spot", is_flag=True, help="Use spot machines.")
@click.option("--output-dir", metavar="URI", help="What the job finds in KINETIC_OUTPUT_DIR.")
@click.option("--debug", is_flag=True, help="Wait for a debugger before the script begins.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for one attempt."
)
@click.option(
    "--retries", type=click.IntRange(min=0), help="How many more attempts to make after failures."
)
@click.option(
    "--preemptions",
    type=click.IntRange(min=0),
    help="The same after disruptions; default: no limit.",
)
@click.option("--cpu", help='Cores of each host, such as 4 or "500m".')
@click.option("--memory", help='Memory of each host, such as "16Gi".')
@click.option("--shared-memory", help="Size of /dev/shm.")
@click.option(
    "--pod-overrides", type=JsonObject(), help="Parts of a pod template: JSON, or its file."
)
@click.option("--detach", is_flag=True, help="Print the job's id once it is started, and leave it.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@target_options(hidden=True)
@click.pass_obj
def command(app: App, /, script: Path, args: tuple[str, ...], detach: bool, **given: Any) -> None:
    """Run a script as a job, as `python SCRIPT ARGS` would run it here; it needs no decorator.

    The options before SCRIPT are those of @kinetic.run. The project of the script is shipped. Its output is printed, and
    its exit code is that of this command. Ctrl-C leaves the job running unless you say otherwise.
    """
    from kinetic.console import Console
    from kinetic.data import Data
    from kinetic.errors import NoValueError
    from kinetic.settings.settings import environment, working_folder
    from kinetic.submit.blocking_call import call
    from kinetic.submit.options import check_options
    from kinetic.submit.request import request_of
    from kinetic.submit.submit import submit
    from kinetic_payload.project.roots import Entry
    from kinetic_runner.child.script import run_script

    given["volumes"] = {mount: Data(path) for mount, path in given["volumes"].items()}
    given["capture_env_vars"] = [*given["capture_env_vars"]]
    options = check_options(
        **{name: value for name, value in given.items() if value is not None and value != []}
    )
    settings = app.settings(**options.overrides)
    request = request_of(options, run_script, settings, environ=environment(), cwd=working_folder())
    request = replace(request, function_name=script.stem)
    script = script.resolve()  # Where Python looks for what it imports.
    start = partial(submit, entry=Entry(file=script, module=None, kind="script", main=script))
    if detach:
        console = Console.of_this_process(settings)
        with console:
            handle = start(request, run_script, args, {}, console=console)
        app.output.line(handle.job_id)
        return
    try:
        call(request, run_script, args, {}, submit=start)
    except NoValueError as error:
        if error.exit_code is None:
            raise
        app.output.warn(
            f"{script.name} exited with {error.exit_code}. Its job is kept: kinetic jobs status {error.job_id}"
        )
        raise click.exceptions.Exit(error.exit_code) from None
