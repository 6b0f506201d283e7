"""The home that keeps a job, and whether the job's folder can be read from here.

Several homes, on one machine, in containers or over a network, may share a store; a home may be shared as
well. FIFOs and pids are valid only on the kernel on which the job's supervisor runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Final

from kinetic.home.paths import Home
from kinetic_payload.records.job import Keeper

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Unreachable(Enum):
    """Why the folder of a job cannot be read."""

    AWAY = "it is on another machine, or in another container"
    NOT_PERMITTED = "its files may not be read by this user"
    GONE = "it was on this machine, and is not there any more"


def keeper_of(home: Home) -> Keeper:
    """Return the description of *home* for the records of its jobs."""
    return Keeper(
        home=home.path, machine=os.uname().nodename, boot=boot_id(), inode=_inode(home.path)
    )


def home_of(
    keeper: Keeper | None, job_id: str, own: Home, *, boot: Callable[[], str] | None = None
) -> Home | Unreachable:
    """Return the home in which to look for the folder of a job that *keeper* keeps.

    If the job has no folder there, it certainly does not run. *own* is the home of this process, and *boot*
    returns the id of the kernel's current run. Records of early versions name no keeper: it is *own*.
    """
    if keeper is None:
        return own
    here = (boot or boot_id)()
    if keeper.machine != os.uname().nodename and not (here and keeper.boot == here):
        return Unreachable.AWAY
    homes = [own] if keeper.home == own.path else [own, Home(keeper.home)]
    for home in homes:
        path = home.job(job_id).path
        try:
            os.stat(path)  # noqa: PTH116 - called often
        except PermissionError:
            return Unreachable.NOT_PERMITTED
        except OSError:
            continue
        # A job's id is unique, so this is its folder, even if it was moved.
        return home if os.access(path, os.R_OK | os.X_OK) else Unreachable.NOT_PERMITTED
    for home in homes:
        # The path alone is not enough: another container may have the same path, or the home was recreated.
        if here and (keeper.boot, keeper.inode) == (here, _inode(home.path)):
            return home
    # On the job's machine, the loop above finds the home. Under another host name this is another container.
    return Unreachable.GONE if keeper.machine == os.uname().nodename else Unreachable.AWAY


def _inode(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - called often
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@cache
def boot_id() -> str:
    """Return the id of this run of the kernel; empty if the system has none."""
    if sys.platform == "darwin":
        return _boot_session()
    try:
        with open(_BOOT_ID, encoding="ascii") as stream:  # noqa: PTH123 - read at each start
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
