"""(child) Run an attempt in the foreground, and debug the exception of its function: `kinetic jobs replay --pdb`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from kinetic_payload.layout import Env
from kinetic_runner.child import pipeline
from kinetic_runner.child.call import CallEnd, Raised
from kinetic_runner.child.streams import flush
from kinetic_runner.task import Task


def main() -> NoReturn:
    """Run the task of the last argument; there is no parent that would claim, watch or report it."""
    task = Task.decode(sys.argv[-1])
    os.environ.update({Env.ATTEMPT: str(task.attempt), Env.HOST_COUNT: str(task.record.hosts)})  # noqa: TID251
    outcome = pipeline.run(task, lambda _: None, on_end=_debug)
    flush()
    sys.exit(outcome.exit_code)


def _debug(end: CallEnd) -> None:
    if isinstance(end, Raised):
        import pdb

        pdb.post_mortem(end.error.__traceback__)
