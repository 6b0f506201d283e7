"""A command beside the function, in its container: `kinetic jobs exec`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kinetic_payload.layout import Env

_SECRET = (Env.SIGNING_KEY, Env.INDEX_NETRC)


def run_beside(command: Sequence[str]) -> NoReturn:
    """Become *command*, with the folder and the environment of the process that runs the function, if there is one."""
    ambient = os.environ  # noqa: TID251 - passed on
    environment = {name: text for name, text in ambient.items() if name not in _SECRET}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
        try:
            process = Path(f"/proc/{pid}")
            if b"--child" in (process / "cmdline").read_bytes().split(b"\0"):
                text = os.fsdecode((process / "environ").read_bytes())
                environment |= dict(each.split("=", 1) for each in text.split("\0") if "=" in each)
                os.chdir(process / "cwd")
                break
        except OSError:
            continue  # It has ended, or is another user's.
    try:
        os.execvpe(command[0], [*command], environment)  # noqa: S606 - as the user wrote it
    except OSError as error:
        sys.stderr.write(f"kinetic: {command[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
