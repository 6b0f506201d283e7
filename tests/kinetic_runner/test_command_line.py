"""What the runner's command line may say."""

from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import Flag
from kinetic_runner.command_line import Arguments, parse_arguments

LEAST = [Flag.STORE, "/store", Flag.JOB, "j", Flag.PAYLOAD_DIGEST, "d", f"{Flag.WORKSPACE}=/w"]
PARSED = Arguments(store="/store", job="j", payload_digest="d", workspace="/w")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], {}),
        ([Flag.ATTEMPT, "2", f"{Flag.HOSTS}=4"], {"attempt": 2, "hosts": 4}),
        ([Flag.TIMEOUT, "1.5", Flag.GRACE, "0"], {"timeout": 1.5, "grace": 0.0}),
        ([Flag.TIMEOUT, "1e-05"], {"timeout": 1e-05}),
        ([Flag.PRIVATE_MOUNTS], {"private_mounts": True}),
        ([Flag.KEEP_INPUTS], {"keep_inputs": True}),
        ([Flag.RETRIES, "0", Flag.PREEMPTIONS, "3"], {"retries": 0, "preemptions": 3}),
        ([Flag.END_MARKER], {"end_marker": True}),
        ([Flag.IDLE], {"idle": True}),
        ([Flag.DEBUG_PORT, "0"], {"debug_port": 0}),  # any free one
    ],
)
def test_flags_are_read_with_a_space_or_an_equals_sign(more: list[str], said: dict) -> None:
    assert parse_arguments([*LEAST, *more]) == Arguments(**{**vars(PARSED), **said})


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (LEAST[2:], Flag.STORE),
        ([*LEAST, "--colour", "red"], "'--colour' is not a flag"),
        ([*LEAST, Flag.ATTEMPT], f"{Flag.ATTEMPT} needs a value"),
        ([*LEAST, Flag.ATTEMPT, "0"], "from 1"),
        ([*LEAST, Flag.HOSTS, "two"], "'two'"),
        ([*LEAST, Flag.TIMEOUT, "soon"], "seconds"),
        ([*LEAST, Flag.TIMEOUT, "inf"], "seconds"),
        ([*LEAST, Flag.TIMEOUT, "1_0"], "seconds"),
        ([*LEAST, Flag.TIMEOUT, "١"], "seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_flag(argv: list[str], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_arguments(argv)
