"""`kinetic profile`: named sets of project, zone, cluster and the like."""

from __future__ import annotations

import json
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.lazy_group import Group
from kinetic_cli.options import (
    JsonObject,
    json_option,
    profile_argument,
    target_options,
)


@click.group("profile", cls=Group)
def command() -> None:
    """Keep sets of settings, and choose among them."""


@command.command("create")
@profile_argument()
@target_options()
@click.option(
    "--backend", metavar="NAME", help="Backend: local, local-gke, local-pathways, gke or pathways."
)
@click.option("--kube-context", metavar="NAME", help="Context of your kubeconfig to use.")
@click.option(
    "--store-timeout",
    type=click.FloatRange(min=1, max=86_400),
    metavar="SECONDS",
    help="How long a submit waits for a store that cannot be reached.",
)
@click.option(
    "--service-account", metavar="NAME", help="Kubernetes service account of the jobs' pods."
)
@click.option("--image-builder", metavar="NAME", help="layers, cloud_build or docker.")
@click.option(
    "--build-secret",
    metavar="SECRET",
    help="Secret in Secret Manager with logins of package indexes for Cloud Build.",
)
@click.option("--image-repo", metavar="HOST/PATH", help="Where bundled images are pushed.")
@click.option("--base-image-repo", metavar="HOST/PATH", help="Where prebuilt images are.")
@click.option(
    "--pod-overrides",
    type=JsonObject(),
    metavar="FILE|JSON",
    help="Parts of a pod template to merge into that of the jobs' pods.",
)
@click.option(
    "--pathways",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Pathways without its prefix, such as tag=jax-0.10.0; may be repeated.",
)
@click.option("--replace", is_flag=True, help="Replace the profile if it is there already.")
@click.pass_obj
def create(
    app: App,
    name: str,
    backend: str | None,
    kube_context: str | None,
    store_timeout: float | None,
    service_account: str | None,
    image_builder: str | None,
    build_secret: str | None,
    image_repo: str | None,
    base_image_repo: str | None,
    pod_overrides: dict[str, Any] | None,
    pathways: tuple[str, ...],
    replace: bool,
) -> None:
    """Make the profile NAME. The first profile becomes the current one."""
    from kinetic.settings.profiles import KEYS, PATHWAYS, Profile, create_profile
    from kinetic.submit.options import check_pod_overrides

    given: dict[str, Any] = {
        **{key: app.target.get(key) for key in ("project", "zone", "cluster", "namespace")},
        "backend": backend,
        "kube_context": kube_context,
        "store_timeout": None if store_timeout is None else f"{store_timeout:g}",
        "service_account": service_account,
        "image_builder": image_builder,
        "build_secret": build_secret,
        "image_repo": image_repo,
        "base_image_repo": base_image_repo,
        "pod_overrides": check_pod_overrides(pod_overrides) if pod_overrides else None,
    }
    known = [key for key in KEYS if key.startswith(PATHWAYS)]
    for text in pathways:
        field, equals, value = text.partition("=")
        if f"{PATHWAYS}{field}" not in known or not equals or not value:
            names = ", ".join(each.removeprefix(PATHWAYS) for each in known)
            raise click.BadParameter(
                f"'{text}' is not NAME=VALUE with one of these names: {names}.",
                param_hint="'--pathways'",
            )
        given[f"{PATHWAYS}{field}"] = value
    profile = Profile(name, {key: value for key, value in given.items() if value})
    written = create_profile(app.profiles_path(), profile, replace=replace)
    current = " It is the current one." if written.current == name else ""
    app.output.line(f"Wrote profile {name}.{current}")


@command.command("ls")
@target_options(hidden=True)
@json_option
@click.pass_obj
def list_profiles(app: App, as_json: bool) -> None:
    """List the profiles; `*` marks the current one."""
    known = app.profiles()
    rows = [
        {**known.profiles[name].facts(), "current": name == known.current}
        for name in sorted(known.profiles)
    ]
    if as_json:
        app.output.json(rows)
    elif not rows:
        app.output.note("No profiles. Make one with: kinetic profile create NAME")
    else:
        columns = ["name", "project", "zone", "cluster", "namespace", "backend", "kube_context"]
        app.output.table(
            ["current", *(column.replace("_", " ") for column in columns)],
            (("*" if row["current"] else "", *(row[column] for column in columns)) for row in rows),
        )


@command.command("use")
@profile_argument()
@click.pass_obj
def use(app: App, name: str) -> None:
    """Make the profile NAME the current one."""
    from kinetic.settings.profiles import use_profile

    use_profile(app.profiles_path(), name)
    app.output.line(f"Profile {name} is the current one.")


@command.command("unset")
@click.pass_obj
def unset(app: App) -> None:
    """Make no profile current; the profiles stay."""
    from kinetic.settings.profiles import unset_profile

    unset_profile(app.profiles_path())
    app.output.line("No profile is current.")


@command.command("show")
@profile_argument(required=False)
@target_options(hidden=True)
@json_option
@click.pass_obj
def show(app: App, name: str | None, as_json: bool) -> None:
    """Show the profile NAME, or the current one."""
    from kinetic.errors import ConfigurationError
    from kinetic.settings.profiles import PATHWAYS

    known = app.profiles()
    name = name or app.target.get("profile") or known.current
    if name is None:
        raise ConfigurationError(
            "No profile is current.", hint="Choose one with: kinetic profile use NAME"
        )
    facts = {**known.find(name).facts(), "current": name == known.current}
    if as_json:
        app.output.json(facts)
    else:
        facts["current"] = "yes" if facts["current"] else "no"
        if facts["pod_overrides"] is not None:
            facts["pod_overrides"] = json.dumps(facts["pod_overrides"])
        shown = {
            key: value
            for key, value in facts.items()
            if value is not None or not key.startswith(PATHWAYS)
        }
        app.output.facts((key.replace("_", " "), value) for key, value in shown.items())


@command.command("rm")
@profile_argument()
@click.pass_obj
def remove(app: App, name: str) -> None:
    """Remove the profile NAME. If it was the current one, no profile is current."""
    from kinetic.settings.profiles import remove_profile

    left = remove_profile(app.profiles_path(), name)
    none = " No profile is current." if left.profiles and left.current is None else ""
    app.output.line(f"Removed profile {name}.{none}")
