"""Requests to a person to log in again: one for all that wait for the same login."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_LONGEST_PAUSE: Final = 300.0
"""Seconds; what waits for a login tries more often, so that a later failure belongs to another expiry."""


class Logins:
    """The logins that failed lately. Can be used from any thread."""

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
"""Those of this process."""
