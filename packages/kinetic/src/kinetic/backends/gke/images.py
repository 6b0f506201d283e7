"""Images of jobs on a cluster: which one, where it is, and made sure that it exists."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    from kinetic_images.base_images import ContextBuilder
    from kinetic_images.builders.builder import Builder, BuildReports
    from kinetic_images.builders.cloud_build import CloudBuildBuilder, RegistryLogin
    from kinetic_images.builders.docker import DockerBuilder
    from kinetic_images.dependencies import Dependencies
    from kinetic_images.ensure import ImageRequest, ImageServices
    from kinetic_images.lock.index_credentials import IndexCredentials
    from kinetic_images.lock.jax import Category
    from kinetic_images.prebuilt import PrebuiltImage
    from kinetic_images.registry.registry import Registry
    from kinetic_images.shared_records import SharedRecords
    from kinetic_images.targets import Machine
    from kinetic_payload.records.signing import Signing
    from kinetic_payload.stores.store import Store

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


@dataclass(frozen=True)
class PreparedImage:
    """The image of a job, and what the job installs into it."""

    reference: str
    """By its digest, if the registry could be queried."""
    environment_digest: str | None = field(default=None, kw_only=True)
    """The digest of the packages that the runner installs; None: it installs nothing."""
    netrc: str = field(default="", kw_only=True, repr=False)
    """Credentials for their indexes, in the format of netrc. Secret."""


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
    registry_login: RegistryLogin | None = None
    """How Cloud Build logs in to a registry outside Google Cloud."""

    def check(self, request: JobRequest) -> None:
        """Refuse a request whose image cannot be provided; nothing is asked over the network.

        Raises:
            InvalidRequestError: The mode is not supported.
            ConfigurationError: A setting is wrong, or the repository for images is not known.
        """
        if request.image.mode == "prebuilt":
            source = request.settings.base_image_repo.source
            self._check_address(source, self.expected(request))
            _check_node_cache(request.settings)
        elif request.image.mode != "custom":
            self.check_builder(request.settings)
            self._check_address("KINETIC_IMAGE_REPO", self.expected(request))
            base = request.settings.base_image
            if base.value is not None:
                self._check_address(base.source, base.value)

    def check_builder(self, settings: Settings) -> None:
        """Refuse a builder that does not exist, or that lacks a setting.

        Raises:
            ConfigurationError: The message names the setting.
        """
        chosen = settings.image_builder
        if chosen.value is not None and chosen.value not in BUILDERS:
            raise ConfigurationError(
                f"{chosen.source} names the image builder {chosen.value!r}, which does not exist.",
                hint=f"Use one of: {', '.join(BUILDERS)}.",
            )
        if chosen.value == "cloud_build" and self.place(settings) is None:
            raise ConfigurationError(
                f"{chosen.source} names the image builder 'cloud_build', and the project and the region "
                "of the cluster are not known.",
                hint="Set KINETIC_PROJECT, KINETIC_ZONE and KINETIC_CLUSTER.",
            )

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
        if request.image.mode == "prebuilt":
            return self._prebuilt_address(request)
        return self._repository(request.settings)

    def ensure(self, request: JobRequest, packaging: Packaging, store: Store) -> PreparedImage:
        """Return the image of the job by its digest; build it if it does not exist.

        What a job in prebuilt mode installs is uploaded to *store*.

        Raises:
            KineticError: The image cannot be used, or cannot be built; the message gives the reason.
        """
        match request.image.mode:
            case "custom":
                return PreparedImage(self._custom(request, packaging))
            case "prebuilt":
                return self._prebuilt(request, packaging, store)
            case _:
                return PreparedImage(self._bundled(request, packaging))

    def _prebuilt_address(self, request: JobRequest) -> str:
        import kinetic
        from kinetic_images.bases import base_image

        repository = request.settings.base_image_repo.value
        if repository is None:
            raise ConfigurationError(
                "container_image='prebuilt' needs the repository of your base images, and none is set.",
                hint=f"Publish them once: {_build_command('REPOSITORY', _category(request))}\n"
                "Then set KINETIC_BASE_IMAGE_REPO=REPOSITORY, or pass base_image_repo=.",
            )
        return base_image(repository, _category(request), kinetic.__version__)

    def _prebuilt(self, request: JobRequest, packaging: Packaging, store: Store) -> PreparedImage:
        from kinetic_images.builders.builder import BuildReports
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.lock.index_credentials import IndexCredentials
        from kinetic_images.prebuilt import find_prebuilt

        settings = request.settings
        assert settings.base_image_repo.value is not None
        command = _build_command(settings.base_image_repo.value, _category(request))
        dependencies = find_dependencies(packaging.plan.root, environ=self.environment)
        address = self._prebuilt_address(request)
        reports = BuildReports(line=packaging.report, progress=packaging.progress)
        shared = self._shared(settings)
        services = self.services(
            settings, dependencies, reports, shared=shared, resolved=packaging.checked
        )
        more = self._imported(dependencies, packaging)
        found = find_prebuilt(
            self._request(request, dependencies, more, base=address, repository=address),
            services,
            command=command,
        )
        _report(packaging, found.notes)
        if not found.packages:
            return PreparedImage(found.base.reference)
        count = len(found.packages)
        packaging.report(f"The job installs {count} package{'s' * (count > 1)} when it starts.")
        # A token of Artifact Registry would expire; there, pods have credentials of their own.
        credentials = IndexCredentials(dependencies, self.environment, google=lambda: None)
        return PreparedImage(
            found.base.reference,
            environment_digest=_upload_packages(found, store, packaging),
            netrc=credentials.netrc(found.addresses),
        )

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
        from kinetic_images.bases import default_base
        from kinetic_images.builders.builder import BuildReports
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.ensure import ensure_image

        settings = request.settings
        dependencies = find_dependencies(packaging.plan.root, environ=self.environment)
        reports = BuildReports(line=packaging.report, progress=packaging.progress)
        shared = self._shared(settings)
        services = self.services(
            settings, dependencies, reports, shared=shared, resolved=packaging.checked
        )
        more = self._imported(dependencies, packaging)
        wanted = self._request(
            request,
            dependencies,
            more,
            base=settings.base_image.value or default_base(_python()),
            repository=self._repository(settings),
        )
        image = ensure_image(wanted, services)
        _report(packaging, image.notes)
        return image.reference

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
            registry=_registry(),
            builders=lambda: [*self._builders(settings, declared)],
            shared=shared,
            environ=self.environment,
            reports=reports,
            resolved=resolved,
        )

    def base_request(self, settings: Settings, category: Category, repository: str) -> ImageRequest:
        """Return the request of a base image for jobs in prebuilt mode, in *repository*."""
        from kinetic_images.bases import default_base
        from kinetic_images.dependencies import NO_PROJECT, find_dependencies
        from kinetic_images.ensure import ImageRequest

        found = find_dependencies(None, environ=self.environment)
        notes = tuple(note for note in found.notes if note != NO_PROJECT)
        return ImageRequest(
            dependencies=replace(found, notes=notes),
            category=category,
            python=_python(),
            base=settings.base_image.value or default_base(_python()),
            repository=repository,
            additions=(bucket_requirement(), "uv"),
            preferences=(pickle_requirement(),),
            refresh=settings.rebuild.value,
        )

    def context_builder(self, settings: Settings) -> ContextBuilder:
        """Return the builder of a user's Dockerfile.

        Raises:
            ConfigurationError: Cloud Build is chosen, and its project or bucket is not known.
        """
        from kinetic_images.dependencies import find_dependencies
        from kinetic_images.lock.index_credentials import IndexCredentials

        nothing = find_dependencies(None, environ=self.environment)
        credentials = IndexCredentials(nothing, self.environment)
        place, store = self.place(settings), self._builds(settings)
        chosen = settings.image_builder.value
        if chosen != "docker" and place is not None and store is not None:
            return self._cloud_build(place, store, credentials)
        if chosen == "cloud_build":
            raise ConfigurationError(
                "Cloud Build needs a project, a region and a builds bucket.",
                hint="Set KINETIC_PROJECT, KINETIC_ZONE and KINETIC_CLUSTER.",
            )
        return self._docker(credentials)

    @property
    def registry(self) -> Registry:
        """The registries, whose connections and tokens are kept in this process."""
        return _registry()

    @property
    def python(self) -> str:
        """The minor version of Python of images: that of this process."""
        return _python()

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
        self,
        request: JobRequest,
        dependencies: Dependencies,
        more: Sequence[str],
        *,
        base: str,
        repository: str,
    ) -> ImageRequest:
        from kinetic.jobs.runner import runner_bundle
        from kinetic_images.ensure import ImageRequest
        from kinetic_images.lock.own import own_wheels_of
        from kinetic_images.recipe import RUNNER_PATH

        wheels = own_wheels_of(dependencies, self.home)
        additions = [bucket_requirement(), *more]
        if request.debug:
            additions.append("debugpy")
        if request.semantics == "pathways":
            additions.append("pathwaysutils")
        return ImageRequest(
            dependencies=dependencies,
            category=_category(request),
            python=_python(),
            machine=_machine(request),
            base=base,
            repository=repository,
            additions=tuple(additions),
            preferences=(pickle_requirement(),),
            own=wheels.own,
            fallback=wheels.fallback,
            # Without bytecode: it would differ between patch versions of Python, and make other images.
            files={RUNNER_PATH: runner_bundle(self.home, bytecode=False)},
            refresh=request.settings.rebuild.value,
        )

    def _builders(self, settings: Settings, dependencies: Dependencies) -> Iterator[Builder]:
        """Iterate over the builders to use, the preferred one first."""
        from kinetic_images.lock.index_credentials import IndexCredentials

        chosen, place = settings.image_builder.value, self.place(settings)
        credentials = IndexCredentials(dependencies, self.environment)
        if chosen in (None, "layers"):
            yield self._layers(credentials)
        if chosen == "docker":
            yield self._docker(credentials)
        store = self._builds(settings) if chosen in (None, "cloud_build") else None
        if place is not None and store is not None:
            yield self._cloud_build(place, store, credentials)

    def _layers(self, credentials: IndexCredentials) -> Builder:
        from kinetic_images.builders.layers.builder import LayersBuilder
        from kinetic_images.downloads import Downloader
        from kinetic_images.wheel_files import WheelFiles

        cache = self.home / "cache"
        downloader = Downloader(authorization=credentials.authorization, environ=self.environment)
        wheels = WheelFiles(cache / "downloads", downloader)
        return LayersBuilder(_registry(), wheels, cache / "layers")

    def _docker(self, credentials: IndexCredentials) -> DockerBuilder:
        from kinetic_images.builders.docker import DockerBuilder
        from kinetic_images.builders.dockerfile.secrets import BuildSecrets

        # Where an authority of the user's own signs certificates, builds need it as well.
        named = self.environment.get("SSL_CERT_FILE")
        secrets = BuildSecrets(netrc=credentials.netrc(), ca=Path(named) if named else None)
        return DockerBuilder(registries=_registry(), secrets=secrets, environ=self.environment)

    def _cloud_build(
        self, place: Place, store: Store, credentials: IndexCredentials
    ) -> CloudBuildBuilder:
        from kinetic_images.builders.cloud_build import CloudBuildBuilder, CloudBuildSettings
        from kinetic_images.builders.dockerfile.secrets import BuildSecrets

        account = f"kn-{place.cluster}-builds@{place.project}.iam.gserviceaccount.com"
        return CloudBuildBuilder(
            settings=CloudBuildSettings(
                project=place.project,
                region=place.region,
                service_account=account,
                registry_login=self.registry_login,
                endpoint=self.environment.get(BUILD_ENDPOINT),
            ),
            store=store,
            registries=_registry(),
            secrets=BuildSecrets(netrc=credentials.netrc()),
        )

    def _repository(self, settings: Settings) -> str:
        named = settings.image_repo.value
        if named is not None:
            return f"{named.rstrip('/')}/bundled"
        place = self.place(settings)
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

    def place(self, settings: Settings) -> Place | None:
        """Return the cluster by its name on GKE; None if its project or region is not known."""
        found = GKE_CONTEXT.fullmatch(self.context or "")
        project = found["project"] if found else settings.project.value
        region = cluster_region(settings, self.context, self.location)
        if project is None or region is None:
            return None
        cluster = found["cluster"] if found else settings.cluster.value
        return Place(project=project, region=region, cluster=cluster)

    def _shared(self, settings: Settings) -> SharedRecords | None:
        from kinetic_images.shared_records import SharedRecords

        store = self._builds(settings)
        return None if store is None else SharedRecords(store, self.signing)

    def _builds(self, settings: Settings) -> Store | None:
        """Return the builds bucket; None if there is none."""
        from kinetic.jobs.services import open_at
        from kinetic_payload.stores.store import parse_location

        address, place = settings.builds_store.value, self.place(settings)
        if address is None and place is not None:
            address = f"gs://{place.project}-kn-{place.cluster}-builds"
        return None if address is None else open_at(parse_location(address), self.home)


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


def _category(request: JobRequest) -> Category:
    # Under Pathways, the function runs on a machine without TPUs.
    return "cpu" if request.semantics == "pathways" else request.accelerator.kind


def _build_command(repository: str, category: Category) -> str:
    return f"kinetic build-image --repo {repository} --category {category}"


def _check_node_cache(settings: Settings) -> None:
    folder = settings.node_cache
    if folder.value is not None and (
        not folder.value.startswith("/") or ".." in folder.value.split("/")
    ):
        raise ConfigurationError(
            f"{folder.source} names the folder {folder.value!r} of nodes, which is not an absolute path.",
            hint="Write for example /var/cache/kinetic, or unset it.",
        )


def _upload_packages(found: PrebuiltImage, store: Store, packaging: Packaging) -> str:
    """Upload what the job installs, unless the store has it; return its digest."""
    from kinetic_images.prebuilt import write_environment
    from kinetic_payload.project.context import ensure_context
    from kinetic_payload.project.snapshot import tree_of

    with tempfile.TemporaryDirectory(prefix="kinetic-packages-") as scratch:
        folder = Path(scratch)
        write_environment(found.packages, _python(), folder)
        tree = tree_of(folder)
        ensure_context(store, tree, track=packaging.progress)
        return tree.digest


def _machine(request: JobRequest) -> Machine:
    arm = isinstance(request.accelerator, Gpu) and request.accelerator.arm64
    return "aarch64" if arm else "x86_64"


def _report(packaging: Packaging, notes: Sequence[str]) -> None:
    """Report *notes*, each once in this process."""
    for note in notes:
        warn_once(packaging.report, note)
