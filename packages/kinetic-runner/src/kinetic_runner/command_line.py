"""The runner's command line: `layout.Flag` → `Arguments`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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


_KINDS: Final = {each.name: str(each.type) for each in fields(Arguments)}
_REQUIRED: Final = ("store", "job", "payload_digest", "workspace")


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
        name = "idle" if flag == Flag.IDLE else flag.removeprefix("--").replace("-", "_")
        if name not in _KINDS:
            raise InvalidRequestError(f"{flag!r} is not a flag of the runner.")
        if _KINDS[name] == "bool":
            values[name] = True
            continue
        if not equals:
            text = next(words, "")
        if not text:
            raise InvalidRequestError(f"{flag} needs a value.")
        values[name] = _parse_value(flag, _KINDS[name], text)
    missing = [f"--{name.replace('_', '-')}" for name in _REQUIRED if name not in values]
    if missing:
        raise InvalidRequestError(f"{', '.join(missing)} must be given.")
    return Arguments(**values)


def _parse_value(flag: str, kind: str, text: str) -> str | float:
    if kind.startswith("str"):
        return text
    number = int if kind.startswith("int") else float
    try:
        value = number(text)
    except ValueError:
        value = -1
    if 0 <= value < float("inf"):
        return value
    what = "a whole number" if number is int else "a number of seconds"
    raise InvalidRequestError(f"{flag} is {text!r}; {what} was expected.")
