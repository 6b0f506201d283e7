"""Which home keeps a job, and whether its folder can be asked from here.

A store may be shared by several homes, on one machine, in containers or over a network, and so may a
home. FIFOs and pids tell something only where the kernel is the one that the job's supervisor runs on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Final

from kinetic.backends.local.paths import Home
from kinetic_payload.records.job import Keeper

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Unreachable(Enum):
    """Why the folder of a job cannot be asked."""

    AWAY = "it is on another machine, or in another container"
    NOT_PERMITTED = "its files may not be read by this user"
    GONE = "it was on this machine, and is not there any more"


def keeper_of(home: Home) -> Keeper:
    """Return *home* as the records of its jobs name it."""
    return Keeper(
        home=home.path, machine=os.uname().nodename, boot=boot_id(), inode=_inode(home.path)
    )


def is_on_this_machine(keeper: Keeper | None, *, boot: Callable[[], str] | None = None) -> bool:
    """Return whether the kernel that *keeper*'s supervisors run on is ours, or was before a reboot.

    A record that names no keeper was written when nobody thought of others.
    """
    if keeper is None or keeper.machine == os.uname().nodename:
        return True
    here = (boot or boot_id)()
    return bool(here) and keeper.boot == here


def home_of(
    keeper: Keeper | None, job_id: str, own: Home, *, boot: Callable[[], str] | None = None
) -> Home | Unreachable:
    """Return the home in which to look for the folder of a job that *keeper* keeps.

    What is not found there is certain not to be there. *own* is the home of whoever asks, and *boot*
    tells the id of the kernel's current run.
    """
    if keeper is None:
        return own
    if not is_on_this_machine(keeper, boot=boot):
        return Unreachable.AWAY
    here = (boot or boot_id)()
    homes = [own] if keeper.home == own.path else [own, Home(keeper.home)]
    for home in homes:
        path = home.job(job_id).path
        try:
            os.stat(path)  # noqa: PTH116 - asked often
        except PermissionError:
            return Unreachable.NOT_PERMITTED
        except OSError:
            continue
        # A job's id is its alone, so this is its folder, wherever it was moved.
        return home if os.access(path, os.R_OK | os.X_OK) else Unreachable.NOT_PERMITTED
    for home in homes:
        # The path alone says little: another container has the same, and a home is soon made again.
        if here and (keeper.boot, keeper.inode) == (here, _inode(home.path)):
            return home
    # Its own machine would find it. Under another name this is another container, with other folders.
    return Unreachable.GONE if keeper.machine == os.uname().nodename else Unreachable.AWAY


def _inode(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked often
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@cache
def boot_id() -> str:
    """Return what identifies this run of the kernel; empty where the system does not tell."""
    if sys.platform == "darwin":
        return _boot_session()
    try:
        with open(_BOOT_ID, encoding="ascii") as stream:  # noqa: PTH123 - asked at each start
            return stream.read().strip()
    except OSError:
        return ""


def _boot_session() -> str:
    import ctypes

    size = ctypes.c_size_t(64)
    text = ctypes.create_string_buffer(size.value)
    try:
        call = ctypes.CDLL(None).sysctlbyname
        failed = call(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0))
    except (OSError, AttributeError):
        return ""
    return "" if failed else text.value.decode("ascii", "replace")
