"""The Cloud Build API, through Google's client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.api_core.client_options import ClientOptions
from google.cloud.devtools import cloudbuild_v1
from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import (
    CloudBuildGrpcTransport,
)

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.builders.cloud_build.state import BuildState
from kinetic_images.builders.cloud_build.translation import translated
from kinetic_images.errors import InvalidBuildError
from kinetic_payload.http.google import fresh_credentials

_CALL: Final = 20.0
"""The longest time of one call, in seconds."""
_CREATE: Final = 60.0
_PLAIN: Final = "http://"


class CloudBuildService:
    """The builds of one project and region. Use it in a `with` block.

    Each call is made once: the caller knows what may be repeated. All of them raise a `BuilderError`:

    - `BuildServiceUnavailableError`: the service did not respond; the call may have had its effect;
    - `BuildServiceLoginError`, `BuildServicePermissionError`, `BuildServiceDisabledError`,
      `BuildQuotaError`, `InvalidBuildError`: it had no effect.
    """

    def __init__(self, settings: CloudBuildSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: Any = None

    def __enter__(self) -> CloudBuildService:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            client, self._opened = self._opened, None
        if client is not None:
            client.transport.close()

    def create(self, request: Mapping[str, Any]) -> BuildState:
        """Create a build of *request*, the fields of a `Build`."""
        with translated("start a build", self._settings):
            try:
                build = cloudbuild_v1.Build(dict(request))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidBuildError(
                    f"A setting of builds is not valid: {error}.",
                    hint="Check the machine type, the time limits and the tags.",
                ) from error
            asked = cloudbuild_v1.CreateBuildRequest(
                parent=self._settings.parent, project_id=self._settings.project, build=build
            )
            operation = self._client().create_build(request=asked, retry=None, timeout=_CREATE)
            return _state_of(operation.metadata.build)

    def find(self, mark: str) -> BuildState | None:
        """Return the build with the tag *mark*, or None."""
        with translated("list builds", self._settings):
            asked = cloudbuild_v1.ListBuildsRequest(
                parent=self._settings.parent,
                project_id=self._settings.project,
                filter=f'tags="{mark}"',
                page_size=1,
            )
            found = self._client().list_builds(request=asked, retry=None, timeout=_CALL)
            return next(map(_state_of, found), None)

    def get(self, build_id: str) -> BuildState:
        """Return a build as it is now."""
        with translated(f"query the build {build_id}", self._settings):
            asked = cloudbuild_v1.GetBuildRequest(**self._named(build_id))
            return _state_of(self._client().get_build(request=asked, retry=None, timeout=_CALL))

    def cancel(self, build_id: str) -> BuildState:
        """Cancel a build that has not ended; return how it is afterwards."""
        with translated(f"cancel the build {build_id}", self._settings):
            asked = cloudbuild_v1.CancelBuildRequest(**self._named(build_id))
            return _state_of(self._client().cancel_build(request=asked, retry=None, timeout=_CALL))

    def _named(self, build_id: str) -> dict[str, str]:
        return {
            "name": f"{self._settings.parent}/builds/{build_id}",
            "project_id": self._settings.project,
            "id": build_id,
        }

    def _client(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = _open(self._settings.endpoint)
            return self._opened


def _open(endpoint: str | None) -> Any:
    if endpoint is not None and endpoint.startswith(_PLAIN):
        channel = grpc.insecure_channel(endpoint.removeprefix(_PLAIN))
        return cloudbuild_v1.CloudBuildClient(transport=CloudBuildGrpcTransport(channel=channel))
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
