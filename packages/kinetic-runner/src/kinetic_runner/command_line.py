"""The runner's command line: `layout.Flag` → `Arguments`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import GRACE_SECONDS, REPORT_SECONDS, Flag


@frozen(kw_only=True)
class Arguments:
    """The runner's arguments: which job, and what only its starter knows. The job's record has the rest."""

    store: str
    """Location of the store: `gs://bucket` or a folder."""
    job: str
    record_digest: str
    workspace: str
    """A folder of this host of this attempt; made if missing."""
    idle: bool = False
    attempt: int | None = None
    lifeline: int | None = None
    """A descriptor to the supervisor; None in a pod, which has none."""
    grace: float = GRACE_SECONDS
    pending_uploads: str | None = None
    """A folder that outlives the job, for values and outcomes that still have to be stored."""
    report_seconds: float = REPORT_SECONDS
    """How many seconds to retry storing the value and the outcome."""


_VALUES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    Flag.STORE: ("store", str),
    Flag.JOB: ("job", str),
    Flag.RECORD_DIGEST: ("record_digest", str),
    Flag.WORKSPACE: ("workspace", str),
    Flag.ATTEMPT: ("attempt", int),
    Flag.LIFELINE: ("lifeline", int),
    Flag.GRACE: ("grace", float),
    Flag.PENDING_UPLOADS: ("pending_uploads", str),
    Flag.REPORT_SECONDS: ("report_seconds", float),
}
_REQUIRED: Final = (Flag.STORE, Flag.JOB, Flag.RECORD_DIGEST, Flag.WORKSPACE)


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the command line, `--flag value`.

    Raises:
        InvalidRequestError: A flag is unknown or missing, or its value is invalid.
    """
    # Not with argparse: its import takes longer than everything else in the parent of a short job.
    values: dict[str, Any] = {}
    words = iter(argv)
    for flag in words:
        if flag == Flag.IDLE:
            values["idle"] = True
            continue
        if flag not in _VALUES:
            raise InvalidRequestError(f"{flag!r} is not a flag of the runner.", hint=_USAGE)
        name, parse = _VALUES[flag]
        text = next(words, "")
        try:
            values[name] = parse(text)
        except ValueError:
            raise InvalidRequestError(f"{flag} is {text!r}; a number was expected.") from None
    missing = [flag for flag in _REQUIRED if not values.get(_VALUES[flag][0])]
    if missing:
        raise InvalidRequestError(f"{', '.join(missing)} must be given.", hint=_USAGE)
    return Arguments(**values)


_USAGE: Final = f"Flags with a value: {', '.join(_VALUES)}. Without: {Flag.IDLE}."
