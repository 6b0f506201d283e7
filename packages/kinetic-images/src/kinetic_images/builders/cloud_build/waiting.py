"""Start a build once, and wait until it has ended, also while the connection is lost."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from kinetic_images.builders.cloud_build.state import WAITING, BuildState
from kinetic_images.errors import BuilderError, BuildQuotaError, BuildServiceUnavailableError
from kinetic_payload.threads import pause

if TYPE_CHECKING:
    from kinetic_images.builders.builder import BuildReports
    from kinetic_images.builders.cloud_build.log import BuildLog

POLL: Final = 0.8
"""Seconds between looks at a build."""
_LOOKS: Final = 4
"""How often a build that may have been created is looked for: lists may lag behind."""
_TRIES: Final = 4
"""How often the creation of a build is tried."""
_LOST: Final = 600.0
"""Seconds for which a lost connection is retried. The build continues meanwhile."""
_QUIET: Final = 5.0
"""Seconds without a response before that is reported."""


class Builds(Protocol):
    """The calls of `CloudBuildService` that are needed here."""

    def create(self, request: Mapping[str, Any]) -> BuildState:
        """Create a build."""
        ...

    def find(self, mark: str) -> BuildState | None:
        """Return the build with the tag *mark*, or None."""
        ...

    def get(self, build_id: str) -> BuildState:
        """Return a build as it is now."""
        ...


def start(
    builds: Builds, request: Mapping[str, Any], mark: str, reports: BuildReports
) -> BuildState:
    """Create the build *request*, which has the tag *mark*, exactly once.

    If the service did not respond, the build may exist nevertheless: it is looked for before it is created
    again.

    Raises:
        BuilderError: The service refused it, or could not be reached.
    """
    for tried in range(1, _TRIES + 1):
        try:
            return builds.create(request)
        except BuildServiceUnavailableError:
            reports.line("Cloud Build did not respond; looking whether the build was started.")
            found = _look(builds, mark)
            if found is not None:
                return found
            if tried == _TRIES:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def _look(builds: Builds, mark: str) -> BuildState | None:
    """Look for a build several times.

    Raises:
        BuilderError: No look succeeded, so it is not known whether the build exists.
    """
    last: BuilderError | None = None
    for _ in range(_LOOKS):
        pause(POLL)
        try:
            found = builds.find(mark)
        except (BuildServiceUnavailableError, BuildQuotaError) as error:
            last = error
            continue
        last = None
        if found is not None:
            return found
    if last is not None:
        raise last
    return None


def wait_build(
    builds: Builds, state: BuildState, log: BuildLog, reports: BuildReports
) -> BuildState:
    """Follow *log* until the build *state* has ended; return how it ended.

    Raises:
        BuilderError: The service did not respond for too long, or does not accept the credentials any more.
            The build continues.
    """
    connection = _Connection(builds, state, reports)
    queued = False
    while not state.is_over:
        began = monotonic()
        state = connection.look(state)
        if state.status in WAITING and not queued:
            queued = True
            reports.line("The build waits in the queue of Cloud Build.")
        log.follow()
        if not state.is_over:
            pause(max(0.0, POLL - (monotonic() - began)))
    log.finish()
    return state


class _Connection:
    """Looks at a build, and tolerates a lost connection."""

    def __init__(self, builds: Builds, state: BuildState, reports: BuildReports) -> None:
        self._builds = builds
        self._reports = reports
        self._link = state.link
        self._lost: float | None = None
        self._reported = False

    def look(self, before: BuildState) -> BuildState:
        """Return the state of the build; that *before* if the connection is lost."""
        try:
            state = self._builds.get(before.build_id)
        except (BuildServiceUnavailableError, BuildQuotaError) as error:
            # Each user has a quota of requests per minute; it does not stop the build.
            self._wait_on(error)
            return before
        except BuilderError as error:
            error.hint = f"{error.hint}\nThe build continues: {self._link}"
            raise
        if self._reported:
            self._reports.line("Cloud Build responds again.")
        self._lost, self._reported = None, False
        return state

    def _wait_on(self, error: BuilderError) -> None:
        now = monotonic()
        self._lost = now if self._lost is None else self._lost
        lost = now - self._lost
        if lost >= _LOST:
            error.hint = f"The build continues, and leaves a correct image: {self._link}"
            raise error
        if lost >= _QUIET and not self._reported:
            self._reported = True
            self._reports.line(
                f"Cloud Build is not responding; retrying for up to {_LOST:.0f} s. The build continues."
            )
