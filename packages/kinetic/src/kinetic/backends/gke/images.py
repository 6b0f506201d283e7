"""Images of jobs on a cluster: which one, where it is, and made sure that it exists."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.regions import GKE_CONTEXT, cluster_region
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.jobs.requirements import bucket_requirement, pickle_requirement
from kinetic.jobs.services import LOOK
from kinetic.notices import warn_once
from kinetic_k8s.accelerators import Gpu

if TYPE_CHECKING:
    from kinetic.backends.backend import Packaging
    from kinetic.settings.settings import Settings
    from kinetic.submit.request import JobRequest
    from kinetic_images.builders.builder import Builder
    from kinetic_images.dependencies import Dependencies
    from kinetic_images.ensure import ImageRequest
    from kinetic_images.lock.index_credentials import IndexCredentials
    from kinetic_images.registry.registry import Registry
    from kinetic_images.shared_records import SharedRecords
    from kinetic_images.targets import Machine
    from kinetic_payload.records.signing import Signing

BUILDERS: Final = ("layers", "cloud_build", "docker")
"""The values of KINETIC_IMAGE_BUILDER."""
BUILD_ENDPOINT: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD"
"""The variable with which `gcloud`, too, uses another address of the API of Cloud Build."""
KERAS: Final = "keras"
_MULTI_REGIONS: Final = ("us", "europe", "asia")
"""Locations of Artifact Registry that contain the regions whose names begin with theirs."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster by its name on GKE."""

    project: str
    region: str
    cluster: str


@dataclass(frozen=True, kw_only=True)
class ClusterImages:
    """The images of the jobs of one cluster."""

    home: Path
    """`KINETIC_HOME`, whose caches are used."""
    signing: Signing
    """Signs what is shared with other machines."""
    environment: Mapping[str, str]
    context: str | None
    """The name of the cluster in the kubeconfig; None: it was found in another way."""
    location: str | None
    """The location of the cluster, as the GKE API names it; None: it is not known."""

    def check(self, request: JobRequest) -> None:
        """Refuse a request whose image cannot be provided; nothing is asked over the network.

        Raises:
            InvalidRequestError: The mode is not supported.
            ConfigurationError: A setting is wrong, or the repository for images is not known.
        """
        if request.image.mode == "prebuilt":
            raise InvalidRequestError(
                "container_image='prebuilt' is not supported on clusters yet.",
                hint="Leave container_image out: an image with the project's requirements is built once.",
            )
        if request.image.mode != "custom":
            chosen = request.settings.image_builder
            if chosen.value is not None and chosen.value not in BUILDERS:
                raise ConfigurationError(
                    f"{chosen.source} names the image builder {chosen.value!r}, which does not exist.",
                    hint=f"Use one of: {', '.join(BUILDERS)}.",
                )
            if chosen.value == "cloud_build" and self._place(request.settings) is None:
                raise ConfigurationError(
                    f"{chosen.source} names the image builder 'cloud_build', and the project and the region "
                    "of the cluster are not known.",
                    hint="Set KINETIC_PROJECT, KINETIC_ZONE and KINETIC_CLUSTER.",
                )
            self._check_address("KINETIC_IMAGE_REPO", self.expected(request))
            base = request.settings.base_image
            if base.value is not None:
                self._check_address(base.source, base.value)

    def _check_address(self, source: str, address: str) -> None:
        from kinetic_images.registry.names import parse_reference

        try:
            parse_reference(address)
        except InvalidRequestError as error:
            raise ConfigurationError(f"{source}: {error.message}", hint=error.hint) from error

    def expected(self, request: JobRequest) -> str:
        """Return the address of the image as far as it is known before it is resolved.

        Raises:
            ConfigurationError: The repository for images is not known.
        """
        if request.image.mode == "custom":
            assert request.image.uri is not None
            return request.image.uri
        return self._repository(request.settings)

    def ensure(self, request: JobRequest, packaging: Packaging) -> str:
        """Return the image of the job by its digest; build it if it does not exist.

        Raises:
            KineticError: The image cannot be used, or cannot be built; the message gives the reason.
        """
        if request.image.mode == "custom":
            return self._custom(request, packaging)
        return self._bundled(request, packaging)

    def _custom(self, request: JobRequest, packaging: Packaging) -> str:
        from kinetic_images.custom import inspect_image

        uri = request.image.uri
        assert uri is not None
        found = inspect_image(
            uri,
            python=_python(),
            machine=_machine(request),
            registry=_registry(LOOK),
            home=self.home,
        )
        _report(packaging, found.notes)
        return found.reference

    def _bundled(self, request: JobRequest, packaging: Packaging) -> str:
        from kinetic_images.builders.builder import BuildReports
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.ensure import ImageServices, ensure_image

        dependencies = find_dependencies(packaging.plan.root, environ=self.environment)
        shared = self._shared(request.settings)
        services = ImageServices(
            home=self.home,
            registry=_registry(),
            builders=lambda: [*self._builders(request.settings, dependencies, shared)],
            shared=shared,
            environ=self.environment,
            reports=BuildReports(line=packaging.report, progress=packaging.progress),
            resolved=packaging.checked,
        )
        more = self._imported(dependencies, packaging)
        image = ensure_image(self._request(request, dependencies, more), services)
        _report(packaging, image.notes)
        return image.reference

    def _imported(self, dependencies: Dependencies, packaging: Packaging) -> list[str]:
        """Return packages that the project imports, and that users often forget to require."""
        from kinetic_payload.project.imports import file_that_imports

        named = {requirement.name for requirement in dependencies.requirements}
        snapshot = None if KERAS in named else packaging.snapshot()
        path = None if snapshot is None else file_that_imports(snapshot, KERAS)
        if path is None:
            return []
        _report(packaging, [f"{path} imports {KERAS}, which no requirement names: it is added."])
        return [KERAS]

    def _request(
        self, request: JobRequest, dependencies: Dependencies, more: Sequence[str]
    ) -> ImageRequest:
        from kinetic.jobs.runner import runner_bundle
        from kinetic_images.bases import default_base
        from kinetic_images.ensure import ImageRequest
        from kinetic_images.lock.own import own_wheels_of
        from kinetic_images.recipe import RUNNER_PATH

        settings = request.settings
        wheels = own_wheels_of(dependencies, self.home)
        on_pathways = request.semantics == "pathways"
        additions = [bucket_requirement(), *more]
        if request.debug:
            additions.append("debugpy")
        if on_pathways:
            additions.append("pathwaysutils")
        return ImageRequest(
            dependencies=dependencies,
            # Under Pathways, the function runs on a machine without TPUs.
            category="cpu" if on_pathways else request.accelerator.kind,
            python=_python(),
            machine=_machine(request),
            base=settings.base_image.value or default_base(_python()),
            repository=self._repository(settings),
            additions=tuple(additions),
            preferences=(pickle_requirement(),),
            own=wheels.own,
            fallback=wheels.fallback,
            # Without bytecode: it would differ between patch versions of Python, and make other images.
            files={RUNNER_PATH: runner_bundle(self.home, bytecode=False)},
            refresh=settings.rebuild.value,
        )

    def _builders(
        self, settings: Settings, dependencies: Dependencies, shared: SharedRecords | None
    ) -> Iterator[Builder]:
        """Iterate over the builders to use, the preferred one first."""
        from kinetic_images.lock.index_credentials import IndexCredentials

        chosen, place = settings.image_builder.value, self._place(settings)
        credentials = IndexCredentials(dependencies, self.environment)
        if chosen in (None, "layers"):
            yield self._layers(credentials)
        if chosen == "docker":
            yield self._docker(credentials)
        if chosen in (None, "cloud_build") and place is not None and shared is not None:
            yield self._cloud_build(place, shared, credentials)

    def _layers(self, credentials: IndexCredentials) -> Builder:
        from kinetic_images.builders.layers.builder import LayersBuilder
        from kinetic_images.downloads import Downloader
        from kinetic_images.wheel_files import WheelFiles

        cache = self.home / "cache"
        downloader = Downloader(authorization=credentials.authorization, environ=self.environment)
        wheels = WheelFiles(cache / "downloads", downloader)
        return LayersBuilder(_registry(), wheels, cache / "layers")

    def _docker(self, credentials: IndexCredentials) -> Builder:
        from kinetic_images.builders.docker import DockerBuilder
        from kinetic_images.builders.dockerfile.secrets import BuildSecrets

        # Where an authority of the user's own signs certificates, builds need it as well.
        named = self.environment.get("SSL_CERT_FILE")
        secrets = BuildSecrets(netrc=credentials.netrc(), ca=Path(named) if named else None)
        return DockerBuilder(registries=_registry(), secrets=secrets, environ=self.environment)

    def _cloud_build(
        self, place: Place, shared: SharedRecords, credentials: IndexCredentials
    ) -> Builder:
        from kinetic_images.builders.cloud_build import CloudBuildBuilder, CloudBuildSettings
        from kinetic_images.builders.dockerfile.secrets import BuildSecrets

        account = f"kn-{place.cluster}-builds@{place.project}.iam.gserviceaccount.com"
        return CloudBuildBuilder(
            settings=CloudBuildSettings(
                project=place.project,
                region=place.region,
                service_account=account,
                endpoint=self.environment.get(BUILD_ENDPOINT),
            ),
            store=shared.store,
            registries=_registry(),
            secrets=BuildSecrets(netrc=credentials.netrc()),
        )

    def _repository(self, settings: Settings) -> str:
        named = settings.image_repo.value
        if named is not None:
            return f"{named.rstrip('/')}/bundled"
        place = self._place(settings)
        if place is None:
            raise ConfigurationError(
                "The repository for images is not known: no project and region of the cluster are set.",
                hint="Set KINETIC_IMAGE_REPO=HOST/PATH, or KINETIC_PROJECT, KINETIC_ZONE and "
                "KINETIC_CLUSTER for the repository of the cluster in Artifact Registry. Or name an image: "
                "container_image='us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG'.",
            )
        group = place.region.partition("-")[0]
        where = group if group in _MULTI_REGIONS else place.region
        return f"{where}-docker.pkg.dev/{place.project}/kn-{place.cluster}/bundled"

    def _place(self, settings: Settings) -> Place | None:
        found = GKE_CONTEXT.fullmatch(self.context or "")
        project = found["project"] if found else settings.project.value
        region = cluster_region(settings, self.context, self.location)
        if project is None or region is None:
            return None
        cluster = found["cluster"] if found else settings.cluster.value
        return Place(project=project, region=region, cluster=cluster)

    def _shared(self, settings: Settings) -> SharedRecords | None:
        from kinetic.jobs.services import open_at
        from kinetic_images.shared_records import SharedRecords
        from kinetic_payload.stores.store import parse_location

        address, place = settings.builds_store.value, self._place(settings)
        if address is None and place is not None:
            address = f"gs://{place.project}-kn-{place.cluster}-builds"
        if address is None:
            return None
        return SharedRecords(open_at(parse_location(address), self.home), self.signing)


@functools.cache
def _registry(limit: float | None = None) -> Registry:
    """Return the registries, whose connections and tokens are kept in this process.

    *limit* is how many seconds a request is retried; None: the default.
    """
    from kinetic_images.registry.registry import Registry
    from kinetic_images.registry.retry import RetryPolicy

    return Registry(policy=None if limit is None else RetryPolicy(limit=limit))


def _python() -> str:
    return "{}.{}".format(*sys.version_info)


def _machine(request: JobRequest) -> Machine:
    arm = isinstance(request.accelerator, Gpu) and request.accelerator.arm64
    return "aarch64" if arm else "x86_64"


def _report(packaging: Packaging, notes: Sequence[str]) -> None:
    """Report *notes*, each once in this process."""
    for note in notes:
        warn_once(packaging.report, note)
