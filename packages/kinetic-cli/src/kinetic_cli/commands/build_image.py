"""`kinetic build-image`."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import FAILED
from kinetic_cli.options import complete_accelerators, json_option, target_options
from kinetic_cli.output import reason_of

if TYPE_CHECKING:
    from kinetic.backends.gke.base_images import BaseImages
    from kinetic.console import Console
    from kinetic.settings.settings import Settings
    from kinetic_images.targets import Category


@click.command("build-image")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--accelerator",
    help="Build the image for jobs of the project in PATH with this accelerator, instead of base images.",
)
@click.option(
    "--repo",
    shell_complete=complete_accelerators,
    metavar="HOST/PATH",
    help="Repository (default: KINETIC_BASE_IMAGE_REPO).",
)
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
    path: Path | None,
    accelerator: str | None,
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
    """Publish base images for container_image="prebuilt", or build a project's image ahead of its jobs.

    Base images contain JAX for the accelerator and what jobs need. Images that are up to date are left as
    they are. The exit code is 1 if one of them could not be published; the others are.

    With --accelerator, the image is that of the project of PATH, a script or a folder (default: the current
    one), as jobs without container_image= use it.
    """
    from kinetic.backends.gke.base_images import CATEGORIES, BaseImages
    from kinetic.settings.settings import environment
    from kinetic.submit.options import check_options
    from kinetic.submit.prepare import prepare
    from kinetic.submit.warnings import Notices
    from kinetic_payload.progress import silent

    given = {"--repo": repo, "--category": categories, "--tag": tag, "--dockerfile": dockerfile}
    given |= {"--registry-user": registry_user, "--registry-secret": registry_secret}
    if accelerator is not None:
        for option in (name for name, value in given.items() if value):
            raise click.UsageError(f"{option} is for base images; leave out --accelerator.")
        settings = _settings(app, rebuild, image_builder=builder)
        began = time.monotonic()
        options = check_options(accelerator=accelerator, container_image="bundled")
        app.print_warnings()
        note = app.output.note
        notices = Notices(lambda text: app.output.warn(f"Warning: {text}"), note, note, silent)
        image = prepare(path or Path(), options, settings, notices).image
        if as_json:
            app.output.json({"image": image, "seconds": round(time.monotonic() - began, 1)})
        else:
            app.output.line(image)
        return
    if path is not None:
        raise click.UsageError(
            "PATH names a project, whose image needs --accelerator NAME as well."
        )
    images = BaseImages(
        _settings(app, rebuild, base_image_repo=repo, image_builder=builder),
        environment(),
        dockerfile=dockerfile,
        registry_user=registry_user,
        registry_secret=registry_secret,
    )
    if tag:
        images = replace(images, tag=tag)
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


def _settings(app: App, rebuild: bool, **given: str | None) -> Settings:
    from kinetic.settings.settings import Setting

    settings = app.settings(**given)
    return replace(settings, rebuild=Setting(True, "argument")) if rebuild else settings


def _publish_all(app: App, images: BaseImages, categories: list[Category]) -> list[dict[str, Any]]:
    from kinetic.console import Console
    from kinetic_payload.threads import Executor

    with (
        Console.of_this_process(app.settings()) as console,
        Executor(len(categories) + 1) as executor,
    ):
        if console.interactive:
            console.phase("publishing base images")
        futures = [
            executor.submit(partial(_publish, app, console, images, category))
            for category in categories
        ]
        return [future.result() for future in futures]


def _publish(app: App, console: Console, images: BaseImages, category: Category) -> dict[str, Any]:
    from kinetic.console import progress_beside
    from kinetic.errors import KineticError
    from kinetic_images.builders.builder import BuildReports

    def report(text: str, *, error: bool = False) -> None:
        # On a terminal, lines appear above the progress of all images.
        on_console, below = (
            (console.note, app.output.warn) if error else (console.say, app.output.note)
        )
        (on_console if console.interactive else below)(f"[{category}] {text}")

    progress = console.progress if console.interactive else progress_beside(report)

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

    def fail(error: str, hint: str | None = None) -> None:
        row.update(error=error, hint=hint)
        report(f"Error: {error}" + (f"\n{hint}" if hint else ""), error=True)

    try:
        found = images.publish(category, BuildReports(line=report, progress=progress))
    except KineticError as error:
        fail(error.message, error.hint)
    except OSError as error:  # A full disk, for instance.
        fail(reason_of(error))
    else:
        for note in found.notes:
            report(f"Warning: {note}", error=True)
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
