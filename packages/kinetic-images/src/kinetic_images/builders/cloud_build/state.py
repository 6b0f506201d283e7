"""The state of a build, and the image or the error at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.errors import (
    BuildCancelledError,
    BuildError,
    BuildServicePermissionError,
    BuildTimeoutError,
)
from kinetic_payload.errors import KineticError

WAITING: Final = frozenset({"PENDING", "QUEUED", "STATUS_UNKNOWN"})
"""The states of a build that has not begun."""
_REFUSED_INDEX: Final = re.compile(r"-python\.pkg\.dev/.*\b(?:401|403)\b", re.DOTALL)
_RUNNING: Final = WAITING | {"WORKING"}


@dataclass(frozen=True, kw_only=True)
class BuildState:
    """A build, as the service describes it."""

    build_id: str
    status: str
    """The name in the API, such as `WORKING`."""
    detail: str = ""
    failure: str = ""
    """The kind of the failure: the name in the API, such as `USER_BUILD_STEP`."""
    failure_detail: str = ""
    failed_step: str = ""
    """Number and image of the step that failed."""
    link: str = ""
    """Its page in the console."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The images that were pushed → their digests."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status not in _RUNNING


def build_failure(
    state: BuildState, image: str, end: str, settings: CloudBuildSettings
) -> KineticError:
    """Return the error of a build of *image* that ended in *state*; *end* is that of its log."""
    account = settings.service_account or "the account of the build"
    see = f"See {state.link}"
    if state.status == "CANCELLED":
        return BuildCancelledError(f"The build of {image} was cancelled.", hint=see)
    if state.status == "EXPIRED":
        return BuildTimeoutError(
            f"The build of {image} waited in the queue of Cloud Build for longer than "
            f"{settings.queue_limit}.",
            hint=f"Other builds of the project use all its machines. {see}",
        )
    what = f"Cloud Build could not build {image}"
    reason = " ".join((state.failure_detail or state.detail).split())[:500]
    shown = f":\n{end}" if end else "."
    if state.status == "TIMEOUT":
        return BuildTimeoutError(
            f"{what} within {settings.timeout}. The end of its log{shown}",
            hint=f"Packages without a wheel are compiled in it: put wheels of them into an index. {see}",
        )
    if "access secret" in reason or "secretmanager.versions.access" in reason:
        return BuildServicePermissionError(
            f"{what}: {reason}",
            hint=f"Check that the secret exists in Secret Manager, and that {account} has "
            f"roles/secretmanager.secretAccessor on it. {see}",
        )
    roles = {
        "PUSH_NOT_AUTHORIZED": f"{account} needs roles/artifactregistry.writer on the repository of "
        f"{image.rpartition(':')[0]}",
        "FETCH_SOURCE_FAILED": f"{account} needs roles/storage.objectViewer on the builds bucket",
        "LOGGING_FAILURE": f"{account} needs roles/storage.objectUser on the builds bucket",
    }
    if state.failure in roles:
        return BuildServicePermissionError(
            f"{what}: {reason or state.failure}. The end of its log{shown}",
            hint=f"Check that {roles[state.failure]}. {see}",
        )
    if state.status == "INTERNAL_ERROR":
        return BuildError(
            f"{what}: an internal error of the service: {reason or 'no details'}{shown}",
            hint=f"Build again. {see}",
        )
    where = f" (step {state.failed_step})" if state.failed_step else ""
    because = f": {reason}" if reason else ""
    if _REFUSED_INDEX.search(end):
        see = f"Check that {account} has roles/artifactregistry.reader on the Python repository. {see}"
    return BuildError(f"{what}{where}{because}. The end of its log{shown}", hint=see)
