"""The image of a job, by its mode: which one, where it is, and made sure that it exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.images.addresses import check_address, check_repository
from kinetic.backends.gke.images.builders import ClusterBuilders, image_python
from kinetic.backends.gke.images.prebuilt import (
    PreparedImage,
    check_node_cache,
    prebuilt_address,
    prepare_prebuilt,
)
from kinetic.backends.gke.images.requests import image_request, machine_of, report_notes
from kinetic.errors import ConfigurationError
from kinetic.jobs.services import LOOK

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
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
            registry=self.builders.registry(LOOK),
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
            settings, dependencies, packaging, resolved=lambda: packaging.checked.set_result(None)
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
