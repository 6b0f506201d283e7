"""The runner's command line."""

from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import Flag
from kinetic_runner.command_line import Arguments, parse_arguments

LEAST = [Flag.STORE, "/store", Flag.JOB, "j", Flag.PAYLOAD_DIGEST, "d", f"{Flag.WORKSPACE}=/w"]
PARSED = {"store": "/store", "job": "j", "payload_digest": "d", "workspace": "/w"}


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ([], {}),
        ([Flag.ATTEMPT, "2", f"{Flag.HOSTS}=4"], {"attempt": 2, "hosts": 4}),
        ([Flag.TIMEOUT, "1.5", Flag.GRACE, "0"], {"timeout": 1.5, "grace": 0.0}),
        ([Flag.TIMEOUT, "1e-05", Flag.PRIVATE_MOUNTS], {"timeout": 1e-05, "private_mounts": True}),
        ([Flag.RETRIES, "0", Flag.PREEMPTIONS, "3"], {"retries": 0, "preemptions": 3}),
        ([Flag.KEEP_INPUTS, Flag.END_MARKER], {"keep_inputs": True, "end_marker": True}),
        ([Flag.IDLE, Flag.DEBUG_PORT, "0"], {"idle": True, "debug_port": 0}),  # any free port
    ],
)
def test_flags_have_a_space_or_an_equals_sign(more: list[str], values: dict) -> None:
    assert parse_arguments([*LEAST, *more]) == Arguments(**{**PARSED, **values})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (LEAST[2:], Flag.STORE),
        ([*LEAST, "--colour", "red"], "'--colour' is not a flag"),
        ([*LEAST, Flag.ATTEMPT], f"{Flag.ATTEMPT} needs a value"),
        ([*LEAST, Flag.HOSTS, "two"], "'two'"),
        ([*LEAST, Flag.HOSTS, "-1"], "a whole number"),
        ([*LEAST, Flag.TIMEOUT, "soon"], "seconds"),
        ([*LEAST, Flag.TIMEOUT, "inf"], "seconds"),
    ],
)
def test_an_impossible_command_line_is_refused_with_its_flag(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_arguments(argv)
