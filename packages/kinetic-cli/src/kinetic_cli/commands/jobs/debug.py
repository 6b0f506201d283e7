"""`kinetic jobs debug`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import job_id_argument, target_options


@click.command("debug")
@job_id_argument
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=5678,
    show_default=True,
    help="Port of this machine to which the debugger connects; 0: any free one. A local job has its own.",
)
@click.option(
    "--working-dir",
    metavar="DIR",
    help="The project's folder on this machine. [default: that of the working directory]",
)
@click.option(
    "--write-launch-json",
    is_flag=True,
    help="Put the settings into .vscode/launch.json of the project; what is there stays.",
)
@target_options(hidden=True)
@click.pass_obj
def command(
    app: App, job_id: str, port: int, working_dir: str | None, write_launch_json: bool
) -> None:
    """Let a debugger attach to a job that was submitted with debug=True.

    Print the settings for VS Code, and forward the port until the job ends. Ctrl-C ends only this command.
    """
    from kinetic.debug import cleanup_port_forward
    from kinetic.jobs.debugging import write_launch_json as write

    job = app.attach(job_id)
    job_id = job.job_id
    app.output.note(f"Waiting until {job_id} is ready for a debugger.")
    try:
        session = job._open_debug_session(local_port=port, working_dir=working_dir)
        try:
            app.output.line(session.instructions, flush=True)
            if write_launch_json:
                app.output.note(f"Wrote {write(session)}")
            for _ in job.log_lines(follow=True):
                pass
        finally:
            cleanup_port_forward(session.process)
    except KeyboardInterrupt:
        app.output.note(f"Stopped; {job_id} keeps running.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    app.output.line(f"{job_id} has {job.status().value}.")
    app.output.note(f"Its result: kinetic jobs result {job_id}")
