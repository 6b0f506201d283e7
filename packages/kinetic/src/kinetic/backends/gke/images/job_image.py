"""The image of a job, by its mode: which one, where it is, and made sure that it exists."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.images.builders import (
    ClusterBuilders,
    check_address,
    check_repository,
    image_python,
    registries,
)
from kinetic.backends.gke.job_spec import ClusterEnvironment
from kinetic.errors import ConfigurationError
from kinetic.jobs.services import LOOK
from kinetic.requirements import BUCKET_REQUIREMENT, pickle_requirement
from kinetic.user_warnings import warn_once
from kinetic_k8s.accelerators import Gpu

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_images.ensure import ImageRequest, ImageServices
    from kinetic_images.targets import Category, Machine
    from kinetic_k8s.cluster.creation import Runner
    from kinetic_payload.stores.store import Store

BUNDLED: Final = "bundled"
"""The name of bundled images in their repository."""
KERAS: Final = "keras"


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
                check_node_cache(settings)
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
        runner: Runner,
    ) -> ClusterEnvironment:
        """Return the image of the job by its digest, to run *runner*; build it if it does not exist.

        What a job in prebuilt mode installs is uploaded to *store*, after *check_secret* if it needs credentials.

        Raises:
            KineticError: The image cannot be used, or cannot be built; the message gives the reason.
        """
        warn = packaging.notices.warn
        match request.image.mode:
            case "prebuilt":
                return self._prebuilt(request, packaging, store, check_secret, runner)
            case "custom":
                from kinetic_images.bases import inspect_image

                assert request.image.uri is not None
                reference, notes = inspect_image(
                    request.image.uri,
                    python=image_python(),
                    machine=machine_of(request),
                    registry=registries(LOOK),
                    home=self.builders.home,
                )
                warn_once(warn, *notes)
                return ClusterEnvironment(reference, runner=runner)
            case _:
                from kinetic_images.bases import default_base
                from kinetic_images.ensure import ensure_image

                base = request.settings.base_image.value or default_base(image_python())
                repository = self._repository(request.settings)
                checked = partial(packaging.checked.set_result, None)
                image = ensure_image(*self._wanted(request, packaging, base, repository, checked))
                warn_once(warn, *image.notes)
                versions = {package.name: package.version for package in image.recipe.packages}
                return ClusterEnvironment(image.reference, runner=runner, jax=versions.get("jax"))

    def _prebuilt(
        self,
        request: JobRequest,
        packaging: Packaging,
        store: Store,
        check_secret: Callable[[], None],
        runner: Runner,
    ) -> ClusterEnvironment:
        from kinetic_images.lock.index_credentials import IndexCredentials
        from kinetic_images.prebuilt import find_prebuilt, write_environment
        from kinetic_payload.project.context import ensure_context
        from kinetic_payload.project.snapshot import tree_of

        repository, address = request.settings.base_image_repo.value, prebuilt_address(request)
        assert repository is not None
        wanted, services = self._wanted(request, packaging, address, address)
        command = _build_command(repository, category_of(request))
        found = find_prebuilt(wanted, services, command=command)
        # A token of Artifact Registry would expire; there, pods have credentials of their own.
        credentials = IndexCredentials(
            wanted.dependencies, self.builders.environment, google=lambda: None
        )
        netrc = credentials.netrc(found.addresses)
        if netrc:
            check_secret()
        packaging.checked.set_result(None)
        warn_once(packaging.notices.warn, *found.notes)
        versions = dict(found.base.packages or {}) | {
            one.name: one.version for one in found.packages
        }
        made = ClusterEnvironment(found.base.reference, runner=runner, jax=versions.get("jax"))
        if not found.packages:
            return made
        count = len(found.packages)
        packaging.notices.step(
            f"The job installs {count} package{'s' * (count > 1)} when it starts."
        )
        with tempfile.TemporaryDirectory(prefix="kinetic-packages-") as scratch:
            folder = Path(scratch)
            write_environment(found.packages, image_python(), folder)
            tree = tree_of(folder)
            ensure_context(store, tree, track=packaging.notices.track)
        return replace(made, packages=tree.digest, netrc=netrc)

    def _wanted(
        self,
        request: JobRequest,
        packaging: Packaging,
        base: str,
        repository: str,
        resolved: Callable[[], None] = lambda: None,
    ) -> tuple[ImageRequest, ImageServices]:
        """Return the request for an image with the dependencies of a job's project, and what it is made with.

        *base* is the address of the image to build on, and *repository* where the result is pushed. What Kinetic
        adds because the project imports it is a warning.
        """
        from kinetic.jobs.runner import runner_bundle
        from kinetic_images.builders.builder import BuildReports
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.ensure import ImageRequest
        from kinetic_images.recipe import RUNNER_PATH
        from kinetic_images.wheels import own_wheels_of
        from kinetic_payload.project.snapshot import file_that_imports

        settings, builders = request.settings, self.builders
        plan = packaging.plan
        dependencies = find_dependencies(
            plan.script or plan.base,
            project=plan.root,
            environ=builders.environment,
            category=category_of(request),
        )
        own, fallback = own_wheels_of(dependencies, builders.home)
        additions = [BUCKET_REQUIREMENT]
        # Users often forget to require it.
        if KERAS not in {line.name for line in dependencies.requirements}:
            snapshot = packaging.snapshot.result()
            path = None if snapshot is None else file_that_imports(snapshot, KERAS)
            if path is not None:
                note = f"{path} imports {KERAS}, which no requirement names: it is added."
                warn_once(packaging.notices.warn, note)
                additions.append(KERAS)
        if request.debug:
            additions.append("debugpy")
        if request.semantics == "pathways":
            additions.append("pathwaysutils")
        wanted = ImageRequest(
            dependencies=dependencies,
            category=category_of(request),
            python=image_python(),
            machine=machine_of(request),
            base=base,
            repository=repository,
            additions=tuple(additions),
            preferences=(pickle_requirement(),),
            own=own,
            fallback=fallback,
            # Without bytecode: it would differ between patch versions of Python, and make other images.
            files={RUNNER_PATH: runner_bundle(builders.home, bytecode=False)},
            refresh=settings.rebuild.value,
        )
        services = builders.services(
            settings,
            dependencies,
            BuildReports(line=packaging.notices.step, progress=packaging.notices.track),
            shared=builders.shared(settings),
            resolved=resolved,
        )
        return wanted, services

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
                "The repository for images is not known: the project or the region of the cluster is not set.",
                hint=f"Set KINETIC_IMAGE_REPO=HOST/PATH, or {self.builders.lacking(settings)} "
                "for the repository of the cluster in Artifact Registry. Or name an image: "
                "container_image='us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG'.",
            )
        return f"{repository.rstrip('/')}/{BUNDLED}"


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


def category_of(request: JobRequest) -> Category:
    """Return the kind of accelerator that the function itself uses."""
    # Under Pathways, the function runs on a machine without TPUs.
    return "cpu" if request.semantics == "pathways" else request.accelerator.kind


def machine_of(request: JobRequest) -> Machine:
    """Return the processor architecture of the machines on which the job runs."""
    arm = isinstance(request.accelerator, Gpu) and request.accelerator.arm64
    return "aarch64" if arm else "x86_64"
