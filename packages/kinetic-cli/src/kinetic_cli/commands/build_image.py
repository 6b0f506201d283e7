"""`kinetic build-image`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import FAILED
from kinetic_cli.options import json_option, target_options

if TYPE_CHECKING:
    from kinetic.backends.gke.base_images import BaseImages
    from kinetic_images.lock.jax import Category


@click.command("build-image")
@click.option("--repo", metavar="HOST/PATH", help="Repository (default: KINETIC_BASE_IMAGE_REPO).")
@click.option(
    "--category",
    "categories",
    type=click.Choice(["cpu", "gpu", "tpu"]),
    multiple=True,
    help="Kind of accelerator; may be repeated.  [default: all three]",
)
@click.option("--tag", help="Tag of the images.  [default: the version of kinetic]")
@click.option(
    "--dockerfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Build this Dockerfile with its folder instead (builders docker and cloud_build).",
)
@click.option(
    "--builder",
    type=click.Choice(["layers", "cloud_build", "docker"]),
    help="Builder.  [default: KINETIC_IMAGE_BUILDER, or the first that can build it]",
)
@click.option("--registry-user", help="User of a registry such as Docker Hub, for Cloud Build.")
@click.option(
    "--registry-secret",
    metavar="SECRET",
    help="Secret of Secret Manager with that user's password or token.",
)
@click.option("--rebuild", is_flag=True, help="Use the newest packages and base image.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App,
    repo: str | None,
    categories: tuple[Category, ...],
    tag: str | None,
    dockerfile: Path | None,
    builder: str | None,
    registry_user: str | None,
    registry_secret: str | None,
    rebuild: bool,
    as_json: bool,
) -> None:
    """Publish base images for container_image="prebuilt".

    They contain JAX for the accelerator and what jobs need. Images that are up to date are left as they
    are. The exit code is 1 if one of them could not be published; the others are.
    """
    from kinetic.backends.gke.base_images import CATEGORIES

    images = app.base_images(
        repo=repo,
        tag=tag,
        dockerfile=dockerfile,
        builder=builder,
        rebuild=rebuild,
        registry_user=registry_user,
        registry_secret=registry_secret,
    )
    images.check()
    chosen = list(dict.fromkeys(categories)) or [*CATEGORIES]
    rows = _publish_all(app, images, chosen)
    if as_json:
        app.output.json({"repository": images.repository, "tag": images.tag, "images": rows})
    else:
        app.output.table(
            ["category", "status", "image", "digest", "seconds"],
            (
                [row[key] for key in ("category", "status", "image", "digest", "seconds")]
                for row in rows
            ),
        )
    if any(row["status"] == "failed" for row in rows):
        raise click.exceptions.Exit(FAILED)
    _say_how_to_use(app, images)


def _publish_all(app: App, images: BaseImages, categories: list[Category]) -> list[dict[str, Any]]:
    from kinetic_payload.threads import Executor

    with Executor(len(categories) + 1) as executor:
        futures = [
            executor.submit(partial(_publish, app, images, category)) for category in categories
        ]
        return [future.result() for future in futures]


def _publish(app: App, images: BaseImages, category: Category) -> dict[str, Any]:
    from kinetic.errors import KineticError
    from kinetic_images.builders.builder import BuildReports

    def report(text: str) -> None:
        app.output.note(f"[{category}] {text}")

    row: dict[str, Any] = {
        "category": category,
        "status": "failed",
        "image": f"{images.repository}/base-{category}:{images.tag}",
        "digest": None,
        "builder": None,
        "seconds": None,
        "error": None,
        "hint": None,
    }
    began = time.monotonic()
    try:
        found = images.publish(category, BuildReports(line=report))
    except KineticError as error:
        row |= {"error": error.message, "hint": error.hint}
        report(f"Error: {error.message}" + (f"\n{error.hint}" if error.hint else ""))
    else:
        for note in found.notes:
            report(note)
        status = "built" if found.built_by else "published" if found.changed else "up to date"
        row |= {"status": status, "digest": found.digest, "builder": found.built_by}
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _say_how_to_use(app: App, images: BaseImages) -> None:
    import kinetic

    if images.tag != kinetic.__version__:
        app.output.note(
            f"Jobs look for the tag {kinetic.__version__}, the version of kinetic, and not for {images.tag}."
        )
        return
    app.output.note(
        f"Use them: export KINETIC_BASE_IMAGE_REPO={images.repository}, and write "
        '@kinetic.run(..., container_image="prebuilt").'
    )
