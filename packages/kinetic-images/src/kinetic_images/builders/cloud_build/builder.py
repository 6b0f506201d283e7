"""`CloudBuildBuilder`: build with Cloud Build, and push the result."""

from __future__ import annotations

import secrets as randomness
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from kinetic_images.builders.build_log import BuildLog
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.cloud_build.request import build_request
from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.builders.cloud_build.state import BuildState, build_failure
from kinetic_images.builders.cloud_build.waiting import LogFollower, start, wait_build
from kinetic_images.builders.dockerfile.container_build import (
    ContainerBuild,
    ContainerBuilder,
    build_addresses,
)
from kinetic_images.builders.dockerfile.context import BuildContext
from kinetic_images.builders.dockerfile.secrets import NETRC_SECRET, BuildSecrets
from kinetic_images.errors import BuilderError, BuildError, BuildInputError, RegistryError
from kinetic_images.lock.addresses import is_google_index
from kinetic_images.recipe import Recipe
from kinetic_payload.errors import PreconditionFailedError
from kinetic_payload.http.session import origin
from kinetic_payload.layout import build_context
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_payload.threads import Stopped

if TYPE_CHECKING:
    from kinetic_images.builders.cloud_build.service import CloudBuildService

_RENEWED: Final = 12 * 3600.0
"""The age in seconds at which a context is renewed, so that no lifecycle rule removes it before it is used."""
_STOPS: Final = (KeyboardInterrupt, SystemExit, Stopped)
"""Exceptions after which nobody waits for the image any more."""


@dataclass(frozen=True, kw_only=True)
class CloudBuildBuilder(ContainerBuilder):
    """Builds images with Cloud Build."""

    settings: CloudBuildSettings
    store: Store
    """The builds bucket: it gets the inputs and the logs of builds."""
    name: str = "cloud_build"

    def obstacle(self, recipe: Recipe) -> str | None:
        """Return why Cloud Build cannot build *recipe*, as a sentence; None if it can."""
        if recipe.target.machine != "x86_64":
            return f"Cloud Build's machines run no programs for {recipe.target.architecture}."
        return super().obstacle(recipe)

    def check(self, recipe: Recipe, image: str) -> None:
        """Refuse a build that cannot read its input.

        Raises:
            BuildInputError: An index needs a login, and `settings` name no secret; or there is no bucket.
        """
        del image  # The account of the build pushes, not this process.
        self._check_bucket()
        self._secrets(build_addresses(recipe, self.environment))

    def run(self, build: ContainerBuild, reports: BuildReports) -> str:
        """Build and push an image that the registry does not have, and return its digest.

        If this process is interrupted, the build is cancelled. If this process is killed, the build
        continues and leaves a correct image.

        Raises:
            BuildInputError: The input cannot be used; nothing was started.
            BuilderError: Cloud Build cannot be used: login, roles, quota, region, …; see the classes.
            BuildError: The build failed; the message contains the end of its log and its link.
            RegistryError: The registry cannot be queried.
            StoreError: The builds bucket cannot be used.
        """
        # Importing Google's client takes a second.
        from kinetic_images.builders.cloud_build.service import CloudBuildService

        image, secrets = build.image, self._secrets(build.addresses)
        self._check_bucket()
        mark = f"kinetic-{randomness.token_hex(8)}"
        request = build_request(
            build,
            self._stored(build.context, reports),
            self.store.location,
            self.settings,
            mark=mark,
            # To which a token of the build's account gives access.
            token_hosts=sorted(
                {origin(each)[1] for each in filter(is_google_index, build.addresses or ())}
            ),
        )
        state = None
        shown = BuildLog(secrets.clean, reports.line)
        with CloudBuildService(self.settings) as service:
            try:
                state = start(service, request, mark, reports)
                reports.line(f"Building {image} with Cloud Build: {state.link}")
                log = LogFollower(self.store, state.build_id, shown)
                over = wait_build(service, state, log, reports)
            except _STOPS:
                self._cancel(service, state, mark, reports)
                raise
        if log.problem is not None:
            reports.line(f"The log of the build could not be read: {log.problem}")
        if over.status != "SUCCESS":
            raise build_failure(over, image, shown.end, self.settings)
        digest = over.digests.get(image)
        by_step = self.settings.registry_login is not None  # Such a push is not listed.
        try:
            found = self.registries.digest(image)
        except RegistryError as error:
            reports.line(f"The image could not be looked up in the registry: {error.message}")
            found = digest
        if found is None or (digest is None and not by_step):
            raise BuildError(
                f"Cloud Build reports success, and there is no image {image}.",
                hint=f"See {over.link}",
            )
        if found != digest and not by_step:
            # Another build has pushed the same recipe meanwhile; its image is as good.
            reports.line(f"Another build has pushed {image}; using that image.")
        return found

    def _check_bucket(self) -> None:
        if self.store.location.kind != "gs":
            raise BuildInputError(
                f"Cloud Build reads its input from a bucket, and {self.store.location} is not one.",
                hint="Use a bucket, gs://BUCKET, or another builder.",
            )

    def _secrets(self, addresses: Iterable[str] | None) -> BuildSecrets:
        """Return the credentials of this machine for *addresses*, which must not appear in a log.

        Raises:
            BuildInputError: There are some, and the build has none.
        """
        if addresses is None:
            return self.secrets(None)
        found = self.secrets([each for each in addresses if not is_google_index(each)])
        if found.hosts and NETRC_SECRET not in self.settings.secret_versions:
            account = self.settings.service_account or "ACCOUNT-OF-BUILDS"
            project = f"--project={self.settings.project}"
            raise BuildInputError(
                f"Packages come from {' and '.join(found.hosts)} with a login, and Cloud Build has none.",
                hint="Store it in Secret Manager once, as lines `machine HOST login USER password PASSWORD`, "
                "and let builds read it:\n"
                f"gcloud secrets create kinetic-netrc {project} --data-file=-   # write the lines, then Ctrl-D\n"
                f"gcloud secrets add-iam-policy-binding kinetic-netrc {project} "
                f"--member=serviceAccount:{account} --role=roles/secretmanager.secretAccessor\n"
                "export KINETIC_BUILD_SECRET=kinetic-netrc",
            )
        return found

    def _cancel(
        self,
        service: CloudBuildService,
        state: BuildState | None,
        mark: str,
        reports: BuildReports,
    ) -> None:
        """Cancel a build, which may not have been started, and report the result."""
        link = ""
        try:
            state = state or service.find(mark)
            if state is None:
                reports.line(f"No build was found. If one appears, it has the tag {mark}.")
                return
            link = state.link
            reports.line(f"Cancelling the build {state.build_id}")
            service.cancel(state.build_id)
        except BuilderError as error:
            with suppress(Exception):  # The interruption is what the caller must see.
                reports.line(
                    f"The build was not cancelled ({error.message}). It continues, and leaves a correct image. "
                    f"{link}".rstrip()
                )
        else:
            reports.line("The build was cancelled.")

    def _stored(self, context: BuildContext, reports: BuildReports) -> str:
        """Return the name of *context* in the bucket, after writing it unless it exists.

        Raises:
            BuildInputError: A file of the context cannot be used.
            StoreError: The bucket cannot be used.
        """
        store, name = self.store, build_context(context.digest)
        stored = store.stat(name)
        # The same name has the same contents: it does not matter which process wrote or renewed it.
        with suppress(PreconditionFailedError):
            if stored is not None and (
                store.now() - stored.updated < _RENEWED
                or store.renew(name, if_generation=stored.generation) is not None
            ):
                return name
            with tempfile.NamedTemporaryFile(prefix="kinetic-context-") as file:
                try:
                    context.write_archive(cast("BinaryIO", file), compressed=True)
                    file.flush()
                except OSError as error:
                    raise BuildError(
                        f"The build context cannot be written to {file.name}: {error.strerror or error}.",
                        hint="Free some space there, or name another folder with TMPDIR.",
                    ) from error
                path = Path(file.name)
                with reports.progress(
                    "uploading the build context", path.stat().st_size
                ) as advance:
                    store.upload(name, path, if_generation=ABSENT, progress=advance)
        return name
