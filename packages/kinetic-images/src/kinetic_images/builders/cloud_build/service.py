"""The Cloud Build API, through Google's client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Self

import grpc
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud.devtools import cloudbuild_v1
from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import (
    CloudBuildGrpcTransport,
)

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.builders.cloud_build.state import BuildState
from kinetic_images.errors import (
    BuilderError,
    BuildQuotaError,
    BuildServiceDisabledError,
    BuildServiceLoginError,
    BuildServicePermissionError,
    BuildServiceUnavailableError,
    InvalidBuildError,
)
from kinetic_payload.http.google import LOGIN, fresh_credentials, google_errors

_CALL: Final = 20.0
"""The longest time of one call, in seconds."""
_CREATE: Final = 60.0
_PLAIN: Final = "http://"
_EXPIRED: Final = "invalid_grant"
"""gRPC reports failures of credentials as an unavailable service, with the words of the token service."""
_LOST: Final = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.GatewayTimeout,
    exceptions.BadGateway,
    exceptions.Unknown,
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.TooManyRequests,
    exceptions.RetryError,
)
_INVALID: Final = (
    exceptions.InvalidArgument,
    exceptions.NotFound,
    exceptions.FailedPrecondition,
)


class CloudBuildService:
    """The builds of one project and region. Use it in a `with` block.

    Each call is made once: the caller knows what may be repeated. All of them raise a `BuilderError`:

    - `BuildServiceUnavailableError`: the service did not respond; the call may have had its effect;
    - `BuildServiceLoginError`, `BuildServicePermissionError`, `BuildServiceDisabledError`,
      `BuildQuotaError`, `InvalidBuildError`: it had no effect.
    """

    def __init__(self, settings: CloudBuildSettings) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_client" in self.__dict__:
            self._client.transport.close()

    def create(self, request: Mapping[str, Any]) -> BuildState:
        """Create a build of *request*, the fields of a `Build`."""
        with _translated("start a build", self._settings):
            asked = cloudbuild_v1.CreateBuildRequest(
                parent=self._settings.parent,
                project_id=self._settings.project,
                build=cloudbuild_v1.Build(dict(request)),
            )
            operation = self._client.create_build(request=asked, retry=None, timeout=_CREATE)
            return _state_of(operation.metadata.build)

    def find(self, mark: str) -> BuildState | None:
        """Return the build with the tag *mark*, or None."""
        with _translated("list builds", self._settings):
            asked = cloudbuild_v1.ListBuildsRequest(
                parent=self._settings.parent,
                project_id=self._settings.project,
                filter=f'tags="{mark}"',
                page_size=1,
            )
            found = self._client.list_builds(request=asked, retry=None, timeout=_CALL)
            return next(map(_state_of, found), None)

    def get(self, build_id: str) -> BuildState:
        """Return a build as it is now."""
        with _translated(f"query the build {build_id}", self._settings):
            asked = cloudbuild_v1.GetBuildRequest(**self._named(build_id))
            return _state_of(self._client.get_build(request=asked, retry=None, timeout=_CALL))

    def cancel(self, build_id: str) -> BuildState:
        """Cancel a build that has not ended; return how it is afterwards."""
        with _translated(f"cancel the build {build_id}", self._settings):
            asked = cloudbuild_v1.CancelBuildRequest(**self._named(build_id))
            return _state_of(self._client.cancel_build(request=asked, retry=None, timeout=_CALL))

    def _named(self, build_id: str) -> dict[str, str]:
        return {
            "name": f"{self._settings.parent}/builds/{build_id}",
            "project_id": self._settings.project,
            "id": build_id,
        }

    @cached_property
    def _client(self) -> Any:
        endpoint = self._settings.endpoint
        if endpoint is not None and endpoint.startswith(_PLAIN):
            channel = grpc.insecure_channel(endpoint.removeprefix(_PLAIN))
            return cloudbuild_v1.CloudBuildClient(
                transport=CloudBuildGrpcTransport(channel=channel)
            )
        # With a new token: gRPC would report an expired login as an unavailable service.
        credentials = fresh_credentials(limit=_CALL)
        options = ClientOptions(api_endpoint=endpoint) if endpoint else None
        return cloudbuild_v1.CloudBuildClient(credentials=credentials, client_options=options)


def _state_of(build: Any) -> BuildState:
    failed = next(
        (
            f"{number} ({step.name})"
            for number, step in enumerate(build.steps)
            if step.status.name in ("FAILURE", "TIMEOUT", "INTERNAL_ERROR")
        ),
        "",
    )
    failure = build.failure_info.type_.name if "failure_info" in build else ""
    return BuildState(
        build_id=build.id,
        status=build.status.name,
        detail=build.status_detail,
        failure="" if failure == "FAILURE_TYPE_UNSPECIFIED" else failure,
        failure_detail=build.failure_info.detail,
        failed_step=failed,
        link=build.log_url,
        digests={image.name: image.digest for image in build.results.images},
    )


@contextmanager
def _translated(verb: str, settings: CloudBuildSettings) -> Iterator[None]:
    """Translate the failures of Google's client in the block; *verb* names what was tried."""
    try:
        with google_errors(BuildServiceLoginError, BuildServiceUnavailableError):
            yield
    except (exceptions.GoogleAPICallError, exceptions.RetryError) as error:
        # The role, the command or the setting that helps: the first that matches.
        text = " ".join(str(getattr(error, "message", None) or error).split())[:500].rstrip(".")
        lowered, project = text.lower(), settings.project
        account = settings.service_account
        denied = isinstance(error, exceptions.PermissionDenied)
        disabled = (
            getattr(error, "reason", None) == "SERVICE_DISABLED" or "has not been used" in text
        )
        matches: list[tuple[bool, type[BuilderError], str]] = [
            (
                isinstance(error, exceptions.Unauthenticated),
                BuildServiceLoginError,
                f"Log in with: {LOGIN}",
            ),
            (
                denied and disabled,
                BuildServiceDisabledError,
                f"Enable the Cloud Build API: gcloud services enable cloudbuild.googleapis.com --project={project}",
            ),
            (
                denied and "actAs" in text,
                BuildServicePermissionError,
                "You need the role roles/iam.serviceAccountUser on the account of builds, "
                f"{account or 'the default one of the project'}.",
            ),
            (
                denied,
                BuildServicePermissionError,
                f"You need the role roles/cloudbuild.builds.editor in the project {project!r}. Ask its "
                "administrator; and check that the project's name is right.",
            ),
            (
                "quota" in lowered or isinstance(error, exceptions.ResourceExhausted),
                BuildQuotaError,
                "Wait for other builds, or use another region. The quotas: "
                f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
                "&service=cloudbuild.googleapis.com",
            ),
            (_EXPIRED in text, BuildServiceLoginError, f"Log in with: {LOGIN}"),
            (
                isinstance(error, _LOST),
                BuildServiceUnavailableError,
                "Check the network, a VPN or proxy. Try again later.",
            ),
            (not isinstance(error, _INVALID), BuilderError, "Cloud Build gave this response."),
            (
                True,
                InvalidBuildError,
                f"Check the project {project!r}, the region {settings.region!r} (the list: "
                "https://cloud.google.com/build/docs/locations), and that the account of builds, "
                f"{account or 'the default one'}, exists.",
            ),
        ]
        kind, hint = next((kind, hint) for matched, kind, hint in matches if matched)
        what = f"Could not {verb} in the project {project!r} ({settings.region})"
        raise kind(f"{what}: {text}.", hint=hint) from error
