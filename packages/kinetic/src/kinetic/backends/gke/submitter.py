"""The user and the machine that submit a job, as a label of its objects."""

from __future__ import annotations

import getpass
import os
import re
from functools import cache
from typing import Final

_LONGEST: Final = 63


@cache
def submitter() -> str:
    """Return the user and the machine of this process as the value of a label: `ada.laptop`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # In containers, the user often has no name.
        user = str(os.getuid())
    return label_of(user, os.uname().nodename)


def label_of(user: str, machine: str) -> str:
    """Return *user* and *machine*, joined, as the value of a label."""
    allowed = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{user}.{machine.partition('.')[0]}")
    return allowed.strip("-_.")[:_LONGEST].rstrip("-_.")
