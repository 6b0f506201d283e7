"""The wait for a build: it is started once, and followed with its log until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kinetic_images.builders.cloud_build.state import WAITING, BuildState
from kinetic_images.errors import BuilderError, BuildQuotaError, BuildServiceUnavailableError
from kinetic_payload.errors import ObjectNotFoundError, StoreError
from kinetic_payload.layout import build_log
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import pause

if TYPE_CHECKING:
    from kinetic_images.builders.builder import BuildReports
    from kinetic_images.builders.cloud_build.service import CloudBuildService

_LOOKS: Final = (0.2, 0.4, 0.8, 1.6)
"""Pauses before looks for a build that may have been created: lists may lag behind."""
_TRIES: Final = 4
"""How often the creation of a build is tried."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 0.8
"""Seconds between looks at a build; each pause is half as long again as the one before."""
_LOST: Final = 600.0
"""Seconds for which a lost connection is retried. The build continues meanwhile."""
_QUIET: Final = 5.0
"""Seconds without a response before that is reported."""
_PIECE: Final = 1024 * 1024
"""The most bytes of one request for the log."""
_LOG_LIMIT: Final = 5.0
"""Seconds for which reading the log is retried. The next call continues where this one stopped."""


def start(
    builds: CloudBuildService, request: Mapping[str, Any], mark: str, reports: BuildReports
) -> BuildState:
    """Create the build *request*, which has the tag *mark*, exactly once.

    If the service did not respond, the build may exist nevertheless: it is looked for before it is created
    again.

    Raises:
        BuilderError: The service refused it, or could not be reached, so that the build may or may not exist.
    """
    for tried in range(1, _TRIES + 1):
        try:
            return builds.create(request)
        except BuildServiceUnavailableError as error:
            failure: BuilderError | None = error if tried == _TRIES else None
        reports.line("Cloud Build did not respond; looking whether the build was started.")
        last: BuilderError | None = None
        for seconds in _LOOKS:
            pause(seconds)
            try:
                found, last = builds.find(mark), None
            except (BuildServiceUnavailableError, BuildQuotaError) as error:
                found, last = None, error
            if found is not None:
                return found
        if failure := last or failure:
            raise failure
    raise AssertionError("unreachable: the last try returns or raises")


def wait_build(
    builds: CloudBuildService, state: BuildState, log: LogFollower, reports: BuildReports
) -> BuildState:
    """Follow *log* until the build *state* has ended; return how it ended.

    Raises:
        BuilderError: The service did not respond for too long, or does not accept the credentials any more.
            The build continues.
    """
    seconds, responded = _FIRST_PAUSE, monotonic()
    queued = quiet = False
    while not state.is_over:
        pause(seconds)
        seconds = min(1.5 * seconds, _LONGEST_PAUSE)
        try:
            state = builds.get(state.build_id)
        except (BuildServiceUnavailableError, BuildQuotaError) as error:
            # Each user has a quota of requests per minute; it does not stop the build.
            lost = monotonic() - responded
            if lost >= _LOST:
                error.hint = f"The build continues, and leaves a correct image: {state.link}"
                raise
            if lost >= _QUIET and not quiet:
                quiet = True
                reports.line(
                    f"Cloud Build is not responding; retrying for up to {_LOST:.0f} s. The build continues."
                )
        except BuilderError as error:
            error.hint = f"{error.hint}\nThe build continues: {state.link}"
            raise
        else:
            if quiet:
                reports.line("Cloud Build responds again.")
            responded, quiet = monotonic(), False
        if state.status in WAITING and not queued:
            queued = True
            reports.line("The build waits in the queue of Cloud Build.")
        log.follow()
    log.finish()
    return state


class LogFollower:
    """The log of one build; each line is passed to *line* once, in order.

    A log that cannot be read does not fail the build: `problem` says why.
    """

    def __init__(self, store: Store, build_id: str, line: Callable[[str], None]) -> None:
        self.problem: str | None = None
        """Why the log could not be read the last time; None: it could."""
        self._store = store
        self._name = build_log(build_id)
        self._line = line
        self._read = 0
        self._rest = b""

    def follow(self) -> bool:
        """Pass on the lines that were written since the last call; return whether there was anything."""
        before, store = self._read, self._store.limited(OutageLimit(_LOG_LIMIT))
        data = bytes(_PIECE)
        while len(data) == _PIECE:
            try:
                data = store.read(self._name, start=self._read, end=self._read + _PIECE)
                self.problem = None
            except ObjectNotFoundError:
                break  # It is written after a few seconds.
            except StoreError as error:
                self.problem = error.message
                break
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line.decode(errors="replace").rstrip("\r"))
        return self._read > before

    def finish(self) -> None:
        """Pass on the rest, with a last line that is not complete. The build has ended: so has its log."""
        while self.follow():
            pass
        rest, self._rest = self._rest, b""
        if rest:
            self._line(rest.decode(errors="replace"))
