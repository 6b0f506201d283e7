"""`kinetic profile create`."""

from __future__ import annotations

from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import JsonObject, Seconds, profile_argument, target_options


@click.command("create")
@profile_argument()
@target_options()
@click.option(
    "--backend", metavar="NAME", help="Backend: local, local-gke, local-pathways, gke or pathways."
)
@click.option("--kube-context", metavar="NAME", help="Context of your kubeconfig to use.")
@click.option(
    "--store-timeout",
    type=Seconds(min=1, max=86_400),
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
def command(
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
    from kinetic.settings.profiles import Profile, create_profile
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
        **_pathways(pathways),
    }
    profile = Profile(name, {key: value for key, value in given.items() if value})
    written = create_profile(app.profiles_path(), profile, replace=replace)
    current = " It is the current one." if written.current == name else ""
    app.output.line(f"Wrote profile {name}.{current}")


def _pathways(given: tuple[str, ...]) -> dict[str, str]:
    from kinetic.settings.profiles import KEYS, PATHWAYS

    known = [key for key in KEYS if key.startswith(PATHWAYS)]
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if f"{PATHWAYS}{name}" not in known or not equals or not value:
            names = ", ".join(each.removeprefix(PATHWAYS) for each in known)
            raise click.BadParameter(
                f"'{text}' is not NAME=VALUE with one of these names: {names}.",
                param_hint="'--pathways'",
            )
        found[f"{PATHWAYS}{name}"] = value
    return found
