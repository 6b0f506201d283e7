"""The log of a build: reported as it comes, and its end for the message of a failure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

_SHOWN: Final = 30
"""The most lines in a message; BuildKit repeats the end of the step that failed at the end of its log."""
_DIGEST: Final = re.compile(r'(?:Step #\d+(?: - "[^"]*")?: )?#\d+ sha256:[0-9a-f]{64}')
"""What docker 20.10 prints of each step."""


class BuildLog:
    """Reports the lines of a build, and keeps the last ones."""

    def __init__(self, clean: Callable[[str], str], report: Callable[[str], None]) -> None:
        self._lines: deque[str] = deque(maxlen=_SHOWN)
        self._clean = clean
        self._report = report

    def __call__(self, line: str) -> None:
        """Take a line; *clean* removes secrets from it before anything else happens."""
        clean = self._clean(line)
        if clean and not _DIGEST.fullmatch(clean):
            self._lines.append(clean)
            self._report(clean)

    @property
    def end(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)
