"""The runner's command line."""

from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import Flag
from kinetic_runner.command_line import Arguments, parse_arguments

LEAST = [Flag.STORE, "/store", Flag.JOB, "j", Flag.RECORD_DIGEST, "d", Flag.WORKSPACE, "/w"]
PARSED = {"store": "/store", "job": "j", "record_digest": "d", "workspace": "/w"}


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ([], {}),
        ([Flag.ATTEMPT, "2", Flag.LIFELINE, "4"], {"attempt": 2, "lifeline": 4}),
        ([Flag.GRACE, "1e-05", Flag.IDLE], {"grace": 1e-05, "idle": True}),
        ([Flag.PENDING_UPLOADS, "/p", Flag.REPORT_SECONDS, "0"],
         {"pending_uploads": "/p", "report_seconds": 0.0}),
    ],
)  # fmt: skip
def test_flags_have_values(more: list[str], values: dict) -> None:
    assert parse_arguments([*LEAST, *more]) == Arguments(**{**PARSED, **values})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (LEAST[2:], Flag.STORE),
        (LEAST[:-1], Flag.WORKSPACE),
        ([*LEAST, "--colour", "red"], "'--colour' is not a flag"),
        ([*LEAST, Flag.ATTEMPT, "two"], "'two'; a number"),
        ([*LEAST, Flag.GRACE], "''; a number"),
    ],
)
def test_an_impossible_command_line_is_refused_with_its_flag(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_arguments(argv)
