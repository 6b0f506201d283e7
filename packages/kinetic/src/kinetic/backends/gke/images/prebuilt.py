"""Prebuilt mode: a published base image, and the packages that a job installs when it starts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.backends.gke.images.addresses import check_repository
from kinetic.backends.gke.images.builders import ClusterBuilders, image_python
from kinetic.backends.gke.images.requests import category_of, image_request, report_notes
from kinetic.errors import ConfigurationError

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_images.lock.jax import Category
    from kinetic_images.prebuilt import PrebuiltImage
    from kinetic_payload.stores.store import Store


@dataclass(frozen=True)
class PreparedImage:
    """The image of a job, and what the job installs into it."""

    reference: str
    """By its digest, if the registry could be queried."""
    environment_digest: str | None = field(default=None, kw_only=True)
    """The digest of the packages that the runner installs; None: it installs nothing."""
    netrc: str = field(default="", kw_only=True, repr=False)
    """Credentials for their indexes, in the format of netrc. Secret."""


def prebuilt_address(request: JobRequest) -> str:
    """Return the address of the published image that the job needs.

    Raises:
        ConfigurationError: The repository of base images is not set, or the setting is no address.
    """
    import kinetic
    from kinetic_images.bases import base_image

    repository = request.settings.base_image_repo
    if repository.value is None:
        raise ConfigurationError(
            "container_image='prebuilt' needs the repository of your base images, and none is set.",
            hint=f"Publish them once: {_build_command('REPOSITORY', category_of(request))}\n"
            "Then set KINETIC_BASE_IMAGE_REPO=REPOSITORY, or pass base_image_repo=.",
        )
    image = base_image(repository.value, category_of(request), kinetic.__version__)
    check_repository(repository.source, repository.value, image.rpartition("/")[2])
    return image


def prepare_prebuilt(
    request: JobRequest,
    packaging: Packaging,
    builders: ClusterBuilders,
    store: Store,
    check_secret: Callable[[], None],
) -> PreparedImage:
    """Return the published image of a job; upload what the job installs to *store*.

    *check_secret* is called before any upload if the job needs credentials for what it installs. It raises
    if the pod cannot get them.

    Raises:
        KineticError: The image was not published, or a dependency cannot be installed when a job starts.
    """
    from kinetic_images.dependencies import find_dependencies
    from kinetic_images.lock.index_credentials import IndexCredentials
    from kinetic_images.prebuilt import find_prebuilt

    settings = request.settings
    assert settings.base_image_repo.value is not None
    dependencies = find_dependencies(packaging.plan.root, environ=builders.environment)
    address = prebuilt_address(request)
    wanted = image_request(
        request,
        dependencies,
        packaging,
        base=address,
        repository=address,
        home=builders.home,
    )
    services = builders.job_services(settings, dependencies, packaging)
    command = _build_command(settings.base_image_repo.value, category_of(request))
    found = find_prebuilt(wanted, services, command=command)
    # A token of Artifact Registry would expire; there, pods have credentials of their own.
    credentials = IndexCredentials(dependencies, builders.environment, google=lambda: None)
    netrc = credentials.netrc(found.addresses)
    if netrc:
        check_secret()
    packaging.checked.set_result(None)
    report_notes(packaging, found.notes)
    if not found.packages:
        return PreparedImage(found.base.reference)
    count = len(found.packages)
    packaging.report(f"The job installs {count} package{'s' * (count > 1)} when it starts.")
    return PreparedImage(
        found.base.reference,
        environment_digest=_upload_packages(found, store, packaging),
        netrc=netrc,
    )


def check_node_cache(settings: Settings) -> None:
    """Refuse a folder of the nodes that cannot be mounted.

    Raises:
        ConfigurationError: It is not an absolute path.
    """
    folder = settings.node_cache
    if folder.value is not None and (
        not folder.value.startswith("/") or ".." in folder.value.split("/")
    ):
        raise ConfigurationError(
            f"{folder.source} names the folder {folder.value!r} of nodes, which is not an absolute path.",
            hint="Write for example /var/cache/kinetic, or unset it.",
        )


def _build_command(repository: str, category: Category) -> str:
    return f"kinetic build-image --repo {repository} --category {category}"


def _upload_packages(found: PrebuiltImage, store: Store, packaging: Packaging) -> str:
    """Upload what the job installs, unless the store has it; return its digest."""
    from kinetic_images.prebuilt import write_environment
    from kinetic_payload.project.context import ensure_context
    from kinetic_payload.project.snapshot import tree_of

    with tempfile.TemporaryDirectory(prefix="kinetic-packages-") as scratch:
        folder = Path(scratch)
        write_environment(found.packages, image_python(), folder)
        tree = tree_of(folder)
        ensure_context(store, tree, track=packaging.progress)
        return tree.digest
