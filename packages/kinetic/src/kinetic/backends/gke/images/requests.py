"""From the request of a job to that of its image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.images.builders import image_python
from kinetic.jobs.requirements import bucket_requirement, pickle_requirement
from kinetic.notices import warn_once
from kinetic_k8s.accelerators import Gpu

if TYPE_CHECKING:
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_images.dependencies import Dependencies
    from kinetic_images.ensure import ImageRequest
    from kinetic_images.lock.jax import Category
    from kinetic_images.targets import Machine

KERAS: Final = "keras"


def image_request(
    request: JobRequest,
    dependencies: Dependencies,
    packaging: Packaging,
    *,
    base: str,
    repository: str,
    home: Path,
) -> ImageRequest:
    """Return the request for an image with the *dependencies* of a job's project.

    *base* is the address of the image to build on, *repository* where the result is pushed, and *home* is
    `KINETIC_HOME`. What Kinetic adds because the project imports it is reported.
    """
    from kinetic.jobs.runner import runner_bundle
    from kinetic_images.ensure import ImageRequest
    from kinetic_images.lock.own import own_wheels_of
    from kinetic_images.recipe import RUNNER_PATH

    wheels = own_wheels_of(dependencies, home)
    additions = [bucket_requirement(), *_imported(dependencies, packaging)]
    if request.debug:
        additions.append("debugpy")
    if request.semantics == "pathways":
        additions.append("pathwaysutils")
    return ImageRequest(
        dependencies=dependencies,
        category=category_of(request),
        python=image_python(),
        machine=machine_of(request),
        base=base,
        repository=repository,
        additions=tuple(additions),
        preferences=(pickle_requirement(),),
        own=wheels.own,
        fallback=wheels.fallback,
        # Without bytecode: it would differ between patch versions of Python, and make other images.
        files={RUNNER_PATH: runner_bundle(home, bytecode=False)},
        refresh=request.settings.rebuild.value,
    )


def category_of(request: JobRequest) -> Category:
    """Return the kind of accelerator that the function itself uses."""
    # Under Pathways, the function runs on a machine without TPUs.
    return "cpu" if request.semantics == "pathways" else request.accelerator.kind


def machine_of(request: JobRequest) -> Machine:
    """Return the processor architecture of the machines on which the job runs."""
    arm = isinstance(request.accelerator, Gpu) and request.accelerator.arm64
    return "aarch64" if arm else "x86_64"


def report_notes(packaging: Packaging, notes: Sequence[str]) -> None:
    """Report *notes*, each once in this process."""
    for note in notes:
        warn_once(packaging.report, note)


def _imported(dependencies: Dependencies, packaging: Packaging) -> list[str]:
    """Return packages that the project imports, and that users often forget to require."""
    from kinetic_payload.project.imports import file_that_imports

    named = {requirement.name for requirement in dependencies.requirements}
    snapshot = None if KERAS in named else packaging.snapshot.result()
    path = None if snapshot is None else file_that_imports(snapshot, KERAS)
    if path is None:
        return []
    report_notes(packaging, [f"{path} imports {KERAS}, which no requirement names: it is added."])
    return [KERAS]
