"""The runner's command line: `layout.Flag` → `Arguments`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import REPORT_SECONDS, Flag


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The runner's arguments."""

    store: str
    job: str
    payload_digest: str
    workspace: str
    context_digest: str | None = None
    environment_digest: str | None = None
    attempt: int | None = None
    hosts: int | None = None
    timeout: float | None = None
    grace: float = 30.0
    retries: int | None = None
    preemptions: int | None = None
    private_mounts: bool = False
    keep_inputs: bool = False
    lifeline: int | None = None
    debug_port: int | None = None
    end_marker: bool = False
    idle: bool = False
    pending_uploads: str | None = None
    report_seconds: float = REPORT_SECONDS


_TEXTS: Final = {
    Flag.STORE: "store",
    Flag.JOB: "job",
    Flag.PAYLOAD_DIGEST: "payload_digest",
    Flag.CONTEXT_DIGEST: "context_digest",
    Flag.ENVIRONMENT_DIGEST: "environment_digest",
    Flag.WORKSPACE: "workspace",
    Flag.PENDING_UPLOADS: "pending_uploads",
}
_NUMBER: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NUMBERS: Final = {
    Flag.ATTEMPT: ("attempt", 1),
    Flag.HOSTS: ("hosts", 1),
    Flag.RETRIES: ("retries", 0),
    Flag.PREEMPTIONS: ("preemptions", 0),
    Flag.LIFELINE: ("lifeline", 0),
    Flag.DEBUG_PORT: ("debug_port", 0),  # 0: any free port; the log names it
}
_SECONDS: Final = {
    Flag.TIMEOUT: "timeout",
    Flag.GRACE: "grace",
    Flag.REPORT_SECONDS: "report_seconds",
}
_SWITCHES: Final = {
    Flag.PRIVATE_MOUNTS: "private_mounts",
    Flag.KEEP_INPUTS: "keep_inputs",
    Flag.END_MARKER: "end_marker",
    Flag.IDLE: "idle",
}
_REQUIRED: Final = (Flag.STORE, Flag.JOB, Flag.PAYLOAD_DIGEST, Flag.WORKSPACE)


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the command line: `--flag value` or `--flag=value`.

    Raises:
        InvalidRequestError: A flag is unknown or missing, or its value is invalid.
    """
    # Not with argparse: its import takes longer than everything else in the parent of a short job.
    values: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        flag, equals, text = word.partition("=")
        if flag in _SWITCHES and not equals:
            values[_SWITCHES[flag]] = True
            continue
        if not equals:
            text = next(words, "")
        if not text:
            raise InvalidRequestError(f"{flag} needs a value.", hint=_usage())
        name, value = _parse_value(flag, text)
        values[name] = value
    missing = [flag for flag in _REQUIRED if _TEXTS[flag] not in values]
    if missing:
        raise InvalidRequestError(f"{', '.join(missing)} must be given.", hint=_usage())
    return Arguments(**values)


def _parse_value(flag: str, text: str) -> tuple[str, Any]:
    if flag in _TEXTS:
        return _TEXTS[flag], text
    if flag in _NUMBERS:
        name, least = _NUMBERS[flag]
        if text.isascii() and text.isdigit() and int(text) >= least:
            return name, int(text)
        raise InvalidRequestError(f"{flag} is {text!r}; a whole number from {least} was expected.")
    if flag in _SECONDS:
        seconds = _parse_number(text)
        if seconds is not None and 0 <= seconds < float("inf"):
            return _SECONDS[flag], seconds
        raise InvalidRequestError(f"{flag} is {text!r}; a number of seconds was expected.")
    raise InvalidRequestError(f"{flag!r} is not a flag of the runner.", hint=_usage())


def _parse_number(text: str) -> float | None:
    # float() alone would accept "1_0", " 1" and non-ASCII digits.
    return float(text) if _NUMBER.fullmatch(text) else None


def _usage() -> str:
    with_value = [*_TEXTS, *_NUMBERS, *_SECONDS]
    return f"Flags with a value: {', '.join(with_value)}. Flags without: {', '.join(_SWITCHES)}."
