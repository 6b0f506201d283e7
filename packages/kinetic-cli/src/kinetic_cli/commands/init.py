"""`kinetic init`: choose a cluster, make one, or find out what is wrong with one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, cast

import click

from kinetic_cli.app import App
from kinetic_cli.options import target_options
from kinetic_cli.plans import carry_out

if TYPE_CHECKING:
    from kinetic.provisioning.google.clusters import FoundCluster

Way = Literal["join", "create", "troubleshoot"]


@click.command("init")
@click.option("--join", "way", flag_value="join", help="Use a cluster that is there.")
@click.option("--create", "way", flag_value="create", help="Make a cluster, as `kinetic up` does.")
@click.option(
    "--troubleshoot", "way", flag_value="troubleshoot", help="Run `kinetic doctor` for a cluster."
)
@click.option("--yes", is_flag=True, help="Do not ask before a cluster is made.")
@target_options(hidden=True)
@click.pass_context
def command(ctx: click.Context, way: Way | None, yes: bool) -> None:
    """Find projects and clusters, and use one: join it, make it, or see what is wrong with it.

    The choice is kept as the current profile. Without a terminal nothing is asked: give --project, one of --join,
    --create and --troubleshoot, and --cluster.
    """
    from kinetic.provisioning.clusters import find_clusters

    app: App = ctx.obj
    app.print_warnings()
    project = _project(app)
    clusters = find_clusters(project)
    if clusters:
        app.output.table(
            ["cluster", "location", "status", "made by"],
            ((c.name, c.location, c.status, "kinetic up" if c.ours else "-") for c in clusters),
        )
    else:
        app.output.note(f"The project {project} has no clusters.")
    if way is None:
        if not sys.stdin.isatty():
            app.output.note(
                f"Go on with: kinetic init --project {project} --join|--create|--troubleshoot --cluster NAME"
            )
            return
        ways = click.Choice(["join", "create", "troubleshoot"] if clusters else ["create"])
        chosen: str = click.prompt("What now?", type=ways, default=ways.choices[0], err=True)
        way = cast("Way", chosen)
    app.target.given["project"] = project
    if way == "create":
        from kinetic.provisioning.clusters import prepare_up

        prepared = prepare_up(app.settings())
        carry_out(app.output, prepared, app.settings(), "Make it?", yes=yes)
        app.target.given["zone"] = prepared.place.location
    else:
        cluster = _cluster(app, clusters)
        app.target.given |= {"cluster": cluster.name, "zone": cluster.location}
    if way == "troubleshoot":
        from kinetic_cli.commands.doctor import command as doctor

        ctx.invoke(doctor, as_json=False, config={})
        return
    _keep(app)


def _project(app: App) -> str:
    """Return the project of the settings, or the one that the user chooses."""
    from kinetic.errors import ConfigurationError
    from kinetic.provisioning.clusters import find_projects

    if found := app.settings().project.value:
        return found
    projects = find_projects()
    if len(projects) == 1:
        return projects[0]
    if not projects or not sys.stdin.isatty():
        named = f" Yours are: {', '.join(projects[:20])}." if projects else ""
        raise ConfigurationError(
            f"No project is named.{named}", hint="Name one with --project or KINETIC_PROJECT."
        )
    app.output.note(f"Your projects: {', '.join(projects)}")
    chosen: str = click.prompt("Project", type=click.Choice(projects), err=True, show_choices=False)
    return chosen


def _cluster(app: App, clusters: list[FoundCluster]) -> FoundCluster:
    """Return the cluster that the command line names, the only one, or the one that the user chooses."""
    from kinetic.errors import ConfigurationError

    names = [each.name for each in clusters]
    named = app.target.get("cluster") or (names[0] if len(names) == 1 else None)
    if named is None and names and sys.stdin.isatty():
        named = click.prompt("Cluster", type=click.Choice(names), default=names[0], err=True)
    for each in clusters:
        if each.name == named:
            return each
    what = (
        "No cluster is named" if named is None else f"There is no cluster {named!r} in the project"
    )
    raise ConfigurationError(
        f"{what}.",
        hint=f"Its clusters are: {', '.join(names)}."
        if names
        else "Make one with: kinetic init --create",
    )


def _keep(app: App) -> None:
    """Keep the chosen cluster as the current profile, which has its name."""
    from kinetic.settings.profiles import Profile, create_profile, use_profile

    settings, path = app.settings(), app.profiles_path()
    values = {
        "project": settings.project.value,
        "zone": settings.zone.value,
        "cluster": settings.cluster.value,
        "namespace": settings.namespace.value,
        "backend": "gke",
    }
    name = settings.cluster.value
    known = app.profiles().profiles.get(name)
    if known is None or any(known.settings.get(key) != value for key, value in values.items()):
        create_profile(path, Profile(name, values))
    use_profile(path, name)
    app.output.line(
        f"Jobs use the cluster {name} in {settings.zone.value}: it is the current profile."
    )
    app.output.note("See whether it has what they need with: kinetic doctor")
