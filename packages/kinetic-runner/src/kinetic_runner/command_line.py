"""The runner's command line: `layout.Flag` → `Arguments`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass

from kinetic_payload.layout import Flag


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What the runner was asked to do."""

    store: str
    job: str
    payload_digest: str
    workspace: str
    context_digest: str | None = None
    attempt: int | None = None
    hosts: int | None = None
    timeout: float | None = None
    grace: float = 30.0
    last_attempt: int | None = None
    private_mounts: bool = False
    lifeline: int | None = None
    debug_port: int | None = None


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the command line.

    Raises:
        SystemExit: With code 2, after saying on stderr what is wrong.
    """
    parser = ArgumentParser(prog="remote_runner.py", allow_abbrev=False)
    parser.add_argument(Flag.STORE, required=True, help="gs://BUCKET or a folder")
    parser.add_argument(Flag.JOB, required=True, help="id of the job")
    parser.add_argument(Flag.PAYLOAD_DIGEST, required=True, help="SHA-256 of the call")
    parser.add_argument(Flag.CONTEXT_DIGEST, help="digest of the project's snapshot")
    parser.add_argument(Flag.WORKSPACE, required=True, help="a folder for this attempt")
    parser.add_argument(Flag.ATTEMPT, type=_positive, help="default: the next free one")
    parser.add_argument(Flag.HOSTS, type=_positive, help="how many hosts the job has")
    parser.add_argument(Flag.TIMEOUT, type=_seconds, help="seconds the function may take")
    parser.add_argument(Flag.GRACE, type=_seconds, default=30.0, help="SIGTERM to SIGKILL")
    parser.add_argument(Flag.LAST_ATTEMPT, type=_positive, help="from here on failures are final")
    parser.add_argument(Flag.PRIVATE_MOUNTS, action="store_true")
    parser.add_argument(Flag.LIFELINE, type=int, help="descriptor that ends with the supervisor")
    parser.add_argument(Flag.DEBUG_PORT, type=int)
    return Arguments(**vars(parser.parse_args(argv)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError(text)
    return number
