"""Outages: the one way to go on when a store, a cluster or a login fails while a job is awaited or its log is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from kinetic.backends.backend import never
from kinetic.user_warnings import LOGINS
from kinetic.waiting import Deadline, sleep
from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    KineticError,
    LoginRequiredError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    UnavailableError,
)
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_payload.threads import check_wanted

log = logging.getLogger("kinetic")

T = TypeVar("T")

LOGIN: Final = (LoginRequiredError, CredentialsError)
"""Errors that pass when a person logs in again."""
PASSING: Final = (UnavailableError, StorePermissionError, *LOGIN)
"""Errors that may pass while a job runs: tokens are renewed, and permissions return."""


class WaitStopped(Exception):  # noqa: N818 - not an error: the caller ended the wait
    """The caller ended the wait."""


class Outages:
    """Errors that pass while something is awaited: each outage is reported once, with *consequence*.

    Without a consequence, nothing is reported. *passes* decides by an error, and by whether a request has succeeded
    before. *warn* gets the report; without it, the report is logged.
    """

    def __init__(
        self,
        consequence: str,
        passes: Callable[[KineticError, bool], bool],
        *,
        warn: Callable[[str], object] | None = None,
        pause: Callable[[float], object] = sleep,
    ) -> None:
        self.pause = pause
        self._consequence = consequence
        self._passes = passes
        self._warn = warn
        self.reached = False
        """Whether a request has succeeded."""
        self._failing = False
        self._reported: set[str] = set()
        self._pauses = Backoff(0.25, 2.0)  # Some errors, such as a refusal, arrive immediately.

    def worked(self) -> None:
        """Note that everything works."""
        self.reached, self._failing = True, False
        self._pauses.reset()

    def next_pause(self, error: KineticError) -> float | None:
        """Return the seconds until the next try; None if *error* does not pass."""
        if not self._passes(error, self.reached):
            return None
        if self._consequence:
            self._report(error)
        return self._pauses.next()

    def _report(self, error: KineticError) -> None:
        failing, self._failing = self._failing, True
        # Each request names itself in its error, but there is one login.
        login = (isinstance(error, LOGIN) and error.hint) or ""
        known = (login or error.message) in self._reported
        self._reported.add(login or error.message)
        if self._warn is None:
            if not known and (login or not failing):
                # With the error: of all that log an expired login, the first one is shown.
                log.warning("%s %s", error, self._consequence)
        elif LOGINS.is_new(login) if login else not (known or failing):
            parts = [f"{text.rstrip('.')}." for text in (error.message, error.hint) if text]
            self._warn(" ".join([*parts, self._consequence]))


def patiently(
    ask: Callable[[], T],
    outages: Outages,
    *,
    deadline: Deadline | None = None,
    stopped: Callable[[], bool] = never,
    given_up: Callable[[KineticError], Exception] = lambda error: error,
) -> T:
    """Return what *ask* returns; call it again while it raises errors that pass.

    Raises:
        WaitStopped: *stopped* returned True during an outage.
        Exception: What *ask* raised, or *given_up* made of it once the *deadline* had passed.
    """
    while True:
        try:
            found = ask()
        except (ObjectNotFoundError, PreconditionFailedError):
            outages.worked()  # The store has responded.
            raise
        except KineticError as error:
            pause = outages.next_pause(error)
            if pause is None:
                raise
            if stopped():
                raise WaitStopped from error
            if deadline is not None and deadline.passed:
                raise given_up(error) from error
        else:
            outages.worked()
            return found
        check_wanted()
        outages.pause(pause if deadline is None else deadline.at_most(pause))


def log_outages(*, pause: Callable[[float], object] = sleep) -> Outages:
    """Return the outages that a followed log outlasts: all that begin after it could be read once."""

    def passes(error: KineticError, reached: bool) -> bool:
        kinds = StoreError | UnavailableError | LoginRequiredError
        return reached and isinstance(error, kinds) and not isinstance(error, BucketNotFoundError)

    consequence = "The log goes on as soon as it can be read again."
    return Outages(consequence, passes, pause=pause)


def lasting(store: Store, outages: Outages, *, stopped: Callable[[], bool]) -> Store:
    """Return *store* with lists and reads that are repeated during *outages*, until *stopped* returns True."""
    return cast("Store", _Lasting(store, outages, stopped))


class _Lasting:
    """The reading half of a store; all else is the store's own."""

    def __init__(self, store: Store, outages: Outages, stopped: Callable[[], bool]) -> None:
        self._store = store
        self._outages = outages
        self._stopped = stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        return self._patiently(lambda: self._store.read(name, start=start, end=end))

    def stat(self, name: str) -> ObjectInfo | None:
        return self._patiently(lambda: self._store.stat(name))

    def folders(self, prefix: str = "") -> Iterator[str]:
        return iter(self._patiently(lambda: list(self._store.folders(prefix))))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        last = start_after
        found: Iterator[ObjectInfo] | None = None

        def following() -> ObjectInfo | None:
            nonlocal found
            if found is None:
                # A list that failed has ended: begin another one after the last object.
                found = self._store.list(prefix, start_after=last)
            try:
                return next(found, None)
            except StoreError:
                found = None
                raise

        while (info := self._patiently(following)) is not None:
            last = info.name
            yield info

    def _patiently(self, request: Callable[[], T]) -> T:
        return patiently(request, self._outages, stopped=self._stopped)
