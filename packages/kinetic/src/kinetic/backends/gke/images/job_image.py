"""The image of a job, by its mode: which one, where it is, what the job installs into it, and that it exists."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.images.builders import ClusterBuilders, image_python, registries
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.jobs.services import LOOK
from kinetic.notices import warn_once
from kinetic.requirements import bucket_requirement, pickle_requirement
from kinetic_k8s.accelerators import Gpu

if TYPE_CHECKING:
    from kinetic.backends.backend import Packaging
    from kinetic.settings.settings import Settings
    from kinetic.submit.request import JobRequest
    from kinetic_images.dependencies import Dependencies
    from kinetic_images.ensure import ImageRequest
    from kinetic_images.lock.jax import Category
    from kinetic_images.prebuilt import PrebuiltImage
    from kinetic_images.targets import Machine
    from kinetic_payload.stores.store import Store

BUNDLED: Final = "bundled"
"""The name of bundled images in their repository."""


@dataclass(frozen=True)
class ClusterImages:
    """The images of the jobs of one cluster."""

    builders: ClusterBuilders

    def check(self, request: JobRequest) -> None:
        """Refuse a request whose image cannot be provided; nothing is asked over the network.

        Raises:
            InvalidRequestError: The mode is not supported.
            ConfigurationError: A setting is wrong, or the repository for images is not known.
        """
        settings = request.settings
        match request.image.mode:
            case "custom":
                pass
            case "prebuilt":
                prebuilt_address(request)
                folder = settings.node_cache
                if folder.value is not None and (
                    not folder.value.startswith("/") or ".." in folder.value.split("/")
                ):
                    raise ConfigurationError(
                        f"{folder.source} names the folder {folder.value!r} of nodes, which is not an "
                        "absolute path.",
                        hint="Write for example /var/cache/kinetic, or unset it.",
                    )
            case _:
                self.builders.check(settings)
                self._repository(settings)
                if settings.base_image.value is not None:
                    check_address(settings.base_image.source, settings.base_image.value)

    def expected(self, request: JobRequest) -> str:
        """Return the address of the image as far as it is known before it is resolved.

        Raises:
            ConfigurationError: The repository for images is not known, or its setting is no address.
        """
        match request.image.mode:
            case "custom":
                assert request.image.uri is not None
                return request.image.uri
            case "prebuilt":
                return prebuilt_address(request)
            case _:
                return self._repository(request.settings)

    def ensure(
        self,
        request: JobRequest,
        packaging: Packaging,
        store: Store,
        check_secret: Callable[[], None],
    ) -> PreparedImage:
        """Return the image of the job by its digest; build it if it does not exist.

        What a job in prebuilt mode installs is uploaded to *store*, after *check_secret* if it needs credentials.

        Raises:
            KineticError: The image cannot be used, or cannot be built; the message gives the reason.
        """
        match request.image.mode:
            case "custom":
                return PreparedImage(self._custom(request, packaging))
            case "prebuilt":
                return prepare_prebuilt(request, packaging, self.builders, store, check_secret)
            case _:
                return PreparedImage(self._bundled(request, packaging))

    def _custom(self, request: JobRequest, packaging: Packaging) -> str:
        from kinetic_images.custom import inspect_image

        uri = request.image.uri
        assert uri is not None
        found = inspect_image(
            uri,
            python=image_python(),
            machine=machine_of(request),
            registry=registries(LOOK),
            home=self.builders.home,
        )
        report_notes(packaging, found.notes)
        return found.reference

    def _bundled(self, request: JobRequest, packaging: Packaging) -> str:
        from kinetic_images.bases import default_base
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.ensure import ensure_image

        settings, builders = request.settings, self.builders
        dependencies = find_dependencies(packaging.plan.root, environ=builders.environment)
        wanted = image_request(
            request,
            dependencies,
            packaging,
            base=settings.base_image.value or default_base(image_python()),
            repository=self._repository(settings),
            home=builders.home,
        )
        services = builders.job_services(
            settings, dependencies, packaging, resolved=packaging.checked
        )
        image = ensure_image(wanted, services)
        report_notes(packaging, image.notes)
        return image.reference

    def _repository(self, settings: Settings) -> str:
        """Return where bundled images are pushed.

        Raises:
            ConfigurationError: The repository is not known, or the setting is no address.
        """
        named, place = settings.image_repo, self.builders.place(settings)
        if named.value is not None:
            check_repository(named.source, named.value, BUNDLED)
            repository = named.value
        elif place is not None:
            repository = place.repository
        else:
            raise ConfigurationError(
                "The repository for images is not known: no project and region of the cluster are set.",
                hint="Set KINETIC_IMAGE_REPO=HOST/PATH, or KINETIC_PROJECT, KINETIC_ZONE and "
                "KINETIC_CLUSTER for the repository of the cluster in Artifact Registry. Or name an image: "
                "container_image='us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG'.",
            )
        return f"{repository.rstrip('/')}/{BUNDLED}"


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
    snapshot = None if KERAS in named else packaging.snapshot()
    path = None if snapshot is None else file_that_imports(snapshot, KERAS)
    if path is None:
        return []
    report_notes(packaging, [f"{path} imports {KERAS}, which no requirement names: it is added."])
    return [KERAS]


def check_address(source: str, address: str) -> None:
    """Refuse an *address* that is not that of an image; *source* is the setting.

    Raises:
        ConfigurationError: The message names the setting.
    """
    from kinetic_images.registry.names import parse_reference

    try:
        parse_reference(address)
    except InvalidRequestError as error:
        raise ConfigurationError(f"{source}: {error.message}", hint=error.hint) from error


def check_repository(source: str, repository: str, image: str) -> None:
    """Refuse a *repository* in which there can be no *image*; *source* is the setting.

    Messages show the repository as it was written, not the image in it.

    Raises:
        ConfigurationError: The message names the setting.
    """
    from kinetic_images.registry.names import parse_reference

    try:
        parse_reference(f"{repository.rstrip('/')}/{image}")
    except InvalidRequestError as error:
        check_address(source, repository.rstrip("/"))
        # Only the image is not valid: a repository has neither a tag nor a digest.
        raise ConfigurationError(
            f"{source}: {repository!r} is not a repository, in which there can be {image}.",
            hint="Write HOST/PATH, without a tag and without a digest.",
        ) from error


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
    packaging.checked()
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
