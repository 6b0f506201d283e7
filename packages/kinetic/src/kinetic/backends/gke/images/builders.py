"""The builders of a cluster's images, and what else building takes: registries, credentials, shared records."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.checks import GKE_CONTEXT, cluster_region
from kinetic.errors import ConfigurationError, InvalidRequestError

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_images.builders.builder import Builder, BuildReports
    from kinetic_images.builders.cloud_build import CloudBuildBuilder, RegistryLogin
    from kinetic_images.builders.docker import DockerBuilder
    from kinetic_images.dependencies import Dependencies
    from kinetic_images.ensure import ImageServices
    from kinetic_images.kept_records import SharedRecords
    from kinetic_images.lock.index_credentials import IndexCredentials
    from kinetic_images.registry.registry import Registry
    from kinetic_payload.records.signing import Signing
    from kinetic_payload.stores.outages import OutageLimit
    from kinetic_payload.stores.store import Store

_MULTI_REGIONS: Final = ("us", "europe", "asia")
"""Locations of Artifact Registry that contain the regions whose names begin with theirs."""


BUILDERS: Final = ("layers", "cloud_build", "docker")
"""The values of KINETIC_IMAGE_BUILDER."""
BUILD_ENDPOINT: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD"
"""The variable with which `gcloud`, too, uses another address of the API of Cloud Build."""


@dataclass(frozen=True, kw_only=True)
class ClusterBuilders:
    """What the images of one cluster are built with."""

    home: Path
    """`KINETIC_HOME`, whose caches are used."""
    signing: Signing
    """Signs what is shared with other machines."""
    environment: Mapping[str, str]
    context: str | None
    """The name of the cluster in the kubeconfig; None: it was found in another way."""
    location: str | None
    """The location of the cluster, as the GKE API names it; None: it is not known."""
    limit: OutageLimit | None = None
    """How long the operation waits for buckets."""
    registry_login: RegistryLogin | None = None
    """How Cloud Build logs in to a registry outside Google Cloud."""

    def check(self, settings: Settings) -> None:
        """Refuse a builder that does not exist, or that lacks a setting.

        Raises:
            ConfigurationError: The message names the setting.
        """
        chosen = settings.image_builder
        source = "--builder" if chosen.source == "argument" else chosen.source
        if chosen.value is not None and chosen.value not in BUILDERS:
            raise ConfigurationError(
                f"{source} names the image builder {chosen.value!r}, which does not exist.",
                hint=f"Use one of: {', '.join(BUILDERS)}.",
            )
        if chosen.value == "cloud_build" and self.place(settings) is None:
            raise ConfigurationError(
                f"{source} names the image builder 'cloud_build', and the project or the region "
                "of the cluster is not known.",
                hint=f"Set {self.lacking(settings)}.",
            )
        if settings.build_secret.value is not None:
            check_secret(settings.build_secret.source, settings.build_secret.value)

    def place(self, settings: Settings) -> Place | None:
        """Return the cluster by its name on GKE; None if its project or region is not known."""
        found = GKE_CONTEXT.fullmatch(self.context or "")
        project = found["project"] if found else settings.project.value
        region = cluster_region(settings, self.context, self.location)
        if project is None or region is None:
            return None
        cluster = found["cluster"] if found else settings.cluster.value
        return Place(project=project, region=region, cluster=cluster)

    def lacking(self, settings: Settings) -> str:
        """Return the settings without which `place` returns None."""
        project = settings.project.value or GKE_CONTEXT.fullmatch(self.context or "")
        region = cluster_region(settings, self.context, self.location)
        lacks = {"KINETIC_PROJECT": not project, "KINETIC_ZONE": not region}
        return " and ".join(name for name, is_lacking in lacks.items() if is_lacking)

    def services(
        self,
        settings: Settings,
        dependencies: Dependencies | None,
        reports: BuildReports,
        *,
        shared: SharedRecords | None = None,
        resolved: Callable[[], None] = lambda: None,
    ) -> ImageServices:
        """Return what images are made with; *shared* are the records that the users of a cluster share.

        Without *dependencies*, indexes come from the settings of the user and the machine alone.
        """
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.ensure import ImageServices

        declared = dependencies or find_dependencies(None, environ=self.environment)
        return ImageServices(
            home=self.home,
            registry=registries(),
            builders=lambda: [*self._builders(settings, declared)],
            shared=shared,
            environ=self.environment,
            reports=reports,
            resolved=resolved,
        )

    def shared(self, settings: Settings) -> SharedRecords | None:
        """Return the records in the builds bucket; None if there is none."""
        from kinetic_images.kept_records import SharedRecords

        builds = self._builds(settings)
        return None if builds is None else SharedRecords(builds, self.signing)

    def context_builder(self, settings: Settings) -> CloudBuildBuilder | DockerBuilder:
        """Return the builder of a user's Dockerfile, after `check`."""
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.lock.index_credentials import IndexCredentials

        nothing = find_dependencies(None, environ=self.environment)
        place, store = self.place(settings), self._builds(settings)
        if settings.image_builder.value != "docker" and place is not None and store is not None:
            return self._cloud_build(settings, place, store, nothing)
        return self._docker(IndexCredentials(nothing, self.environment), {})

    def _builders(self, settings: Settings, dependencies: Dependencies) -> Iterator[Builder]:
        """Iterate over the builders to use, the preferred one first."""
        from kinetic_images.lock.addresses import build_indexes, full_addresses
        from kinetic_images.lock.index_credentials import IndexCredentials

        chosen, place = settings.image_builder.value, self.place(settings)
        credentials = IndexCredentials(dependencies, self.environment)
        if chosen in (None, "layers"):
            yield self._layers(credentials, full_addresses(dependencies))
        if chosen == "docker":
            yield self._docker(credentials, build_indexes(dependencies))
        store = self._builds(settings) if chosen in (None, "cloud_build") else None
        if place is not None and store is not None:
            yield self._cloud_build(settings, place, store, dependencies)

    def _layers(self, credentials: IndexCredentials, addresses: Mapping[str, str]) -> Builder:
        from kinetic_images.builders.layers.builder import LayersBuilder
        from kinetic_images.downloads import Downloader
        from kinetic_images.wheel_files import WheelFiles

        cache = self.home / "cache"
        downloader = Downloader(
            authorization=credentials.authorization,
            addresses=addresses,
            environ=self.environment,
        )
        wheels = WheelFiles(cache / "downloads", downloader)
        return LayersBuilder(registries(), wheels, cache / "layers")

    def _docker(self, credentials: IndexCredentials, indexes: Mapping[str, str]) -> DockerBuilder:
        from kinetic_images.builders.docker import DockerBuilder
        from kinetic_images.builders.dockerfile.secrets import BuildSecrets

        # Where an authority of the user's own signs certificates, builds need it as well.
        named = self.environment.get("SSL_CERT_FILE")
        ca = Path(named) if named else None
        return DockerBuilder(
            registries=registries(),
            secrets=lambda addresses: BuildSecrets(netrc=credentials.netrc(addresses), ca=ca),
            environment=indexes,
            environ=self.environment,
        )

    def _cloud_build(
        self, settings: Settings, place: Place, store: Store, dependencies: Dependencies
    ) -> CloudBuildBuilder:
        from kinetic_images.builders.cloud_build import CloudBuildBuilder, CloudBuildSettings
        from kinetic_images.builders.cloud_build.settings import secret_version
        from kinetic_images.builders.dockerfile.secrets import NETRC_SECRET, BuildSecrets
        from kinetic_images.lock.addresses import build_indexes
        from kinetic_images.lock.index_credentials import IndexCredentials

        # In Artifact Registry, builds use their own account.
        credentials = IndexCredentials(dependencies, self.environment, google=lambda: None)
        secret = settings.build_secret.value
        secrets = {NETRC_SECRET: secret_version(secret, place.project)} if secret else {}
        return CloudBuildBuilder(
            settings=CloudBuildSettings(
                project=place.project,
                region=place.region,
                service_account=place.builds_account,
                secret_versions=secrets,
                registry_login=self.registry_login,
                endpoint=self.environment.get(BUILD_ENDPOINT),
            ),
            store=store,
            registries=registries(),
            secrets=lambda addresses: BuildSecrets(netrc=credentials.netrc(addresses)),
            environment=build_indexes(dependencies),
        )

    def _builds(self, settings: Settings) -> Store | None:
        """Return the builds bucket; None if there is none."""
        from kinetic.jobs.services import open_at
        from kinetic_payload.stores.store import parse_location

        address, place = settings.builds_store.value, self.place(settings)
        if address is None and place is not None:
            address = place.builds_store
        return None if address is None else open_at(parse_location(address), self.limit)


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


def check_secret(source: str, secret: str) -> None:
    """Refuse *secret*, which *source* names, unless it is a name in Secret Manager.

    Raises:
        ConfigurationError: The message does not contain it: it may be the secret itself.
    """
    from kinetic_images.builders.cloud_build.settings import secret_version

    try:
        secret_version(secret, "")
    except InvalidRequestError as error:
        raise ConfigurationError(f"{source}: {error.message}", hint=error.hint) from None


@functools.cache
def registries(limit: float | None = None) -> Registry:
    """Return the registries, whose connections and tokens are kept in this process.

    *limit* is how many seconds a request is retried; None: the default.
    """
    from kinetic_images.registry.registry import Registry
    from kinetic_payload.http.retry import RetryPolicy

    return Registry(policy=None if limit is None else RetryPolicy(limit=limit))


def image_python() -> str:
    """Return the minor version of Python of images: that of this process."""
    return "{}.{}".format(*sys.version_info)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster by its name on GKE."""

    project: str
    region: str
    cluster: str

    @property
    def repository(self) -> str:
        """The repository for images in Artifact Registry."""
        group = self.region.partition("-")[0]
        where = group if group in _MULTI_REGIONS else self.region
        return f"{where}-docker.pkg.dev/{self.project}/kn-{self.cluster}"

    @property
    def builds_store(self) -> str:
        """The address of the builds bucket."""
        return builds_store(self.project, self.cluster)

    @property
    def builds_account(self) -> str:
        """The service account of builds."""
        return f"kn-{self.cluster}-builds@{self.project}.iam.gserviceaccount.com"


def builds_store(project: str, cluster: str) -> str:
    """Return the address of the builds bucket of a cluster."""
    return f"gs://{project}-kn-{cluster}-builds"
