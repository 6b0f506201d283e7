"""(child) End processes that user code forked and that return into the runner's code."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from kinetic_runner.child.streams import flush


def leave_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process if it is not *pid*: a fork must neither report nor clean up.

    Print the traceback of *error*, as Python does for an exception that leaves a script.
    """
    if os.getpid() != pid:
        _leave(error)


def _leave(error: BaseException | None) -> NoReturn:
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            _print(f"{error.code}\n")
    elif error is not None:
        from kinetic_runner.child.tracebacks import text_of

        code = 1
        _print(text_of(error))
    flush()
    os._exit(code & 0xFF)


def _print(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:  # noqa: BLE001  # user code may have put anything there, or closed it
        return
