"""Keep a laptop awake while a job runs on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

CAFFEINATE: Final = ("/usr/bin/caffeinate", "-i", "-w")
"""Part of macOS: with a process id appended, prevents idle sleep until that process ends."""


def awake_command(*, allow_sleep: bool, platform: str = sys.platform) -> tuple[str, ...]:
    """Return the command that, with a process id appended, keeps this machine awake until that process ends."""
    return () if allow_sleep or platform != "darwin" else CAFFEINATE


def keep_awake(command: Sequence[str], pid: int) -> None:
    """Start *command* for process *pid*. If that fails, the job runs without it."""
    if not command:
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        files = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
        os.posix_spawn(command[0], [*command, str(pid)], {}, file_actions=files)
    except OSError:
        return
    finally:
        os.close(null)
