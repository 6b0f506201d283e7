"""Warnings: point at the user's line that called Kinetic, or pass the text to what reports it. One request for each login."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.printable import printable

_LONGEST_PAUSE: Final = 300.0
"""Seconds; what waits for a login tries more often, so that a later failure belongs to another expiry."""


class Logins:
    """The logins that failed lately: of all that wait for one, the first asks a person. Can be used from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_at: dict[str, float] = {}

    def is_new(self, login: str) -> bool:
        """Note that *login* has failed; return whether a person has to be asked for it."""
        now = self._clock()
        with self._lock:
            before = self._failed_at.get(login)
            self._failed_at[login] = now
        return before is None or now - before > _LONGEST_PAUSE


LOGINS: Final = Logins()
"""Those that this process has shown to its user."""

_given: Final[set[str]] = set()
"""The texts that this process has reported once."""


def warn_once(warn: Callable[[str], None], *texts: str | None) -> None:
    """Call *warn* with each of *texts* that is not None and that this process has not given before."""
    for text in texts:
        if text is not None and text not in _given:
            _given.add(text)
            warn(text)


_report: Callable[[str], None] | None = None


@contextmanager
def reported_to(report: Callable[[str], None]) -> Iterator[None]:
    """Pass each text to *report* once instead of warning, in all threads, within the block."""
    global _report
    reported: set[str] = set()

    def report_once(text: str) -> None:
        if text not in reported:
            reported.add(text)
            report(text)

    before, _report = _report, report_once
    try:
        yield
    finally:
        _report = before


class _Reported(logging.Handler):
    """Passes messages to *note*: each text once, and an expired login unless it was shown."""

    def __init__(self, note: Callable[[str], None], *, unless_handled: bool) -> None:
        super().__init__(logging.WARNING)
        self._note = note
        self.unless_handled = unless_handled
        self._reported: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if self.unless_handled and _others_handle(logging.getLogger(record.name)):
            return
        text = record.getMessage()
        # Each request names itself in its error, but there is one login.
        args = record.args if isinstance(record.args, tuple) else ()
        logins = [each.hint for each in args if isinstance(each, LoginRequiredError) and each.hint]
        is_new = LOGINS.is_new(logins[0]) if logins else text not in self._reported
        self._reported.add(text)
        if is_new:
            self._note(f"{record.levelname.capitalize()}: {text}")


@contextmanager
def logged_to(note: Callable[[str], None], *, unless_handled: bool = False) -> Iterator[None]:
    """Within the block, pass what Kinetic logs as a warning or an error to *note*, in the thread that logs.

    Each text is passed once, and an expired login unless something else has shown it. With *unless_handled*, none is
    if the program has a handler for them.
    """
    logger, handler = logging.getLogger("kinetic"), _Reported(note, unless_handled=unless_handled)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _others_handle(logger: logging.Logger | None) -> bool:
    while logger is not None:
        for each in logger.handlers:
            substitute = isinstance(each, _Reported) and each.unless_handled
            if not substitute and not isinstance(each, logging.NullHandler):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def warn_caller(text: str) -> None:
    """Warn at the line of user code that called Kinetic; escape control characters."""
    caller_warning()(text)


def caller_warning() -> Callable[[str], None]:
    """Return a function that warns as `warn_caller` does here, in whichever thread it is called."""
    user = sys._getframe()
    frame: FrameType | None = user
    while frame is not None:
        # Frames of the standard library, such as context managers, may lie between those of Kinetic.
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] in ("kinetic", "kinetic_payload"):
            user = frame.f_back or frame
        frame = frame.f_back
    file, line, names = user.f_code.co_filename, user.f_lineno, user.f_globals

    def warn(text: str) -> None:
        if _report is not None:
            _report(printable(text))
            return
        seen = names.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            printable(text), UserWarning, file, line, names.get("__name__"), seen
        )

    return warn


def warn_or_log(text: str, warn: Callable[[str], None]) -> None:
    """Warn; if warnings are errors, log *text* instead, because an exception would lose a value."""
    try:
        warn(text)
    except Warning:
        logging.getLogger("kinetic").warning(text)
