"""Logs of BuildKit: the lines that explain a failure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

SHOWN: Final = 30
"""The most lines of a log in a message."""
KEPT: Final = 2000
"""How many lines of a log to keep for a message."""

_CLOUD_STEP: Final = re.compile(r'Step #\d+(?: - "[^"]*")?: ')
_STEP: Final = re.compile(r"#(\d+) (?:(ERROR:.*|CANCELED)|[0-9.]+ (.*)|(.*))")
_DIGEST: Final = re.compile(r"#\d+ sha256:[0-9a-f]{64}")


class LogLines:
    """Reports the lines of a build's log as they come, and keeps the latest for a message."""

    def __init__(self, clean: Callable[[str], str], report: Callable[[str], None]) -> None:
        self.kept: deque[str] = deque(maxlen=KEPT)
        self._clean = clean
        self._report = report

    def __call__(self, line: str) -> None:
        """Take a line; *clean* removes secrets from it before anything else happens."""
        clean = self._clean(line)
        self.kept.append(clean)
        if not is_noise(clean):
            self._report(clean)


def is_noise(line: str) -> bool:
    """Return whether *line* tells a reader nothing: docker 20.10 prints the digest of each step."""
    return not line or _DIGEST.fullmatch(line) is not None


def log_end(lines: Sequence[str]) -> str:
    """Return the lines of a log that explain its failure: the end of the step that failed, or of all."""
    parsed = [_STEP.fullmatch(_CLOUD_STEP.sub("", line)) for line in lines]
    failed = [found[1] for found in parsed if found and (found[2] or "").startswith("ERROR:")]
    if not failed:
        return "\n".join([line for line in lines if line.strip()][-SHOWN:])
    step = [found for found in parsed if found and found[1] == failed[-1]]
    texts = [next(filter(None, found.groups()[1:]), "") for found in step]
    return "\n".join([text for text in texts if not is_noise(f"#0 {text}")][-SHOWN:])
