"""The clock of a service, as the dates of its responses show it."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

_AGE: Final = 60.0
"""Seconds after which a faster response counts no more."""


class ServiceClock:
    """How far a service's clock is ahead, measured by the dates of its responses.

    The date of a slow response is less exact, so the fastest response counts.
    """

    def __init__(self) -> None:
        self.ahead: float | None = None
        """In seconds; None if there was no response yet."""
        self._since = 0.0
        self._took = 0.0

    def note(self, date: str | None, sent: float, now: float) -> None:
        """Use the *date* of a response that arrived at *now*; its request was sent at *sent*."""
        known = self.ahead is not None and 0 <= now - self._since < _AGE
        if date is None or (known and now - sent >= self._took):
            return
        try:
            stated = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        # Dates are truncated to whole seconds.
        self.ahead = stated + 0.5 - (sent + now) / 2
        self._since, self._took = now, now - sent
