"""`kinetic build-image`: publish the base images on which jobs in prebuilt mode run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kinetic
from kinetic.backends.gke.images.builders import (
    ClusterBuilders,
    check_repository,
    check_secret,
    image_python,
    registries,
)
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.requirements import BUCKET_REQUIREMENT, pickle_requirement
from kinetic_payload.records.signing import UNSIGNED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinetic.settings.settings import Settings
    from kinetic_images.base_images import PublishedImage
    from kinetic_images.builders.builder import BuildReports
    from kinetic_images.ensure import ImageRequest
    from kinetic_images.targets import Category

CATEGORIES: Final[tuple[Category, ...]] = ("cpu", "gpu", "tpu")
"""The kinds of accelerators; each has a base image of its own."""


@dataclass(frozen=True)
class BaseImages:
    """The base images in one repository."""

    settings: Settings
    """`base_image_repo` names the repository, `image_builder` the builder, and `rebuild` resolves again."""
    environment: Mapping[str, str]
    tag: str = kinetic.__version__
    """Jobs look for the version of `kinetic`, the default."""
    dockerfile: Path | None = None
    """A Dockerfile of the user in place of Kinetic's choice of packages."""
    registry_user: str | None = None
    registry_secret: str | None = None
    """With which user, and which secret of Secret Manager, Cloud Build logs in to another registry than Google's:
    the name of a secret, or `projects/P/secrets/S/versions/V`."""

    @property
    def repository(self) -> str:
        """The repository without a slash at its end.

        Raises:
            ConfigurationError: None is set.
        """
        found = self.settings.base_image_repo.value
        if found is None:
            raise ConfigurationError(
                "The repository for base images is not set.",
                hint="Add --repo HOST/PATH, or set KINETIC_BASE_IMAGE_REPO.",
            )
        return found.rstrip("/")

    def check(self) -> None:
        """Refuse settings with which nothing can be built; nothing is asked over the network.

        Raises:
            ConfigurationError: The repository is not set or is no address.
            InvalidRequestError: The builder cannot build what is wanted, or there is no Dockerfile.
        """
        from kinetic_images.registry.names import parse_reference

        source = self.settings.base_image_repo.source
        place = "--repo" if source == "argument" else source
        for category in CATEGORIES:
            check_repository(place, self.repository, f"base-{category}")
        try:
            parse_reference(f"{self.repository}/base-cpu").tagged(self.tag)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"--tag: {error.message}", hint=error.hint) from error
        self._check_login()
        self._builders().check(self.settings)
        if self.dockerfile is None:
            return
        if not self.dockerfile.is_file():
            raise InvalidRequestError(
                f"There is no Dockerfile {self.dockerfile}.", hint="Check the path of --dockerfile."
            )
        if self.settings.image_builder.value == "layers":
            raise InvalidRequestError(
                "The builder 'layers' runs no Dockerfile.",
                hint="Use --builder docker or --builder cloud_build.",
            )

    def _check_login(self) -> None:
        if self.registry_user is None and self.registry_secret is None:
            return
        if not self.registry_user or not self.registry_secret:
            raise InvalidRequestError(
                "A login for a registry needs a user and a secret, and one of them is missing.",
                hint="Add both --registry-user USER and --registry-secret SECRET.",
            )
        if self.settings.image_builder.value != "cloud_build":
            raise InvalidRequestError(
                "--registry-secret is for builds by Cloud Build; other builders push with docker's own login.",
                hint="Add --builder cloud_build, or leave it out and run `docker login`.",
            )
        check_secret("--registry-secret", self.registry_secret)

    def publish(self, category: Category, reports: BuildReports) -> PublishedImage:
        """Build and publish the image of *category*, unless it is up to date.

        Raises:
            KineticError: It cannot be built or pushed; the tag is as it was.
        """
        from kinetic_images.base_images import publish, publish_dockerfile

        builders = self._builders()
        if self.dockerfile is None:
            request = self._request(category)
            services = builders.services(self.settings, None, reports)
            return publish(request, services, tag=self.tag)
        return publish_dockerfile(
            self.dockerfile,
            f"{self.repository}/base-{category}",
            builders.context_builder(self.settings),
            registries(),
            reports,
            tag=self.tag,
            python=image_python(),
            home=builders.home,
            rebuild=self.settings.rebuild.value,
        )

    def _request(self, category: Category) -> ImageRequest:
        from kinetic_images.bases import default_base
        from kinetic_images.dependencies import NO_PROJECT, find_dependencies
        from kinetic_images.ensure import ImageRequest

        found = find_dependencies(None, environ=self.environment)
        notes = tuple(note for note in found.notes if note != NO_PROJECT)
        return ImageRequest(
            dependencies=replace(found, notes=notes),
            category=category,
            python=image_python(),
            base=self.settings.base_image.value or default_base(image_python()),
            repository=f"{self.repository}/base-{category}",
            additions=(BUCKET_REQUIREMENT, "uv"),
            preferences=(pickle_requirement(),),
            refresh=self.settings.rebuild.value,
        )

    def _builders(self) -> ClusterBuilders:
        builders = ClusterBuilders(
            home=Path(self.settings.home.value),
            signing=UNSIGNED,
            environment=self.environment,
            context=self.settings.kube_context.value,
            location=None,
        )
        place, user, secret = (
            builders.place(self.settings),
            self.registry_user,
            self.registry_secret,
        )
        if not user or not secret or place is None:
            return builders
        from kinetic_images.builders.cloud_build import RegistryLogin
        from kinetic_images.builders.cloud_build.settings import secret_version
        from kinetic_images.registry.names import parse_reference

        login = RegistryLogin(
            host=parse_reference(self.repository).host,
            user=user,
            secret_version=secret_version(secret, place.project),
        )
        return replace(builders, registry_login=login)
