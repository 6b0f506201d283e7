"""`KINETIC_HOME`: refused where other users may change what is in it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress

from kinetic.errors import ConfigurationError
from kinetic_payload.private_files import FOLDER_MODE, make_folder, others_may_write

_FOLDERS = ("bundles", "cache", "environments", "jobs", "ports")
"""What lies right below it, and is for nobody else to see."""
_STORE = "store"
_OR_ANOTHER = "Or name a folder of your own with KINETIC_HOME."


def make_home(path: str) -> None:
    """Make the home *path* unless it is there.

    Raises:
        ConfigurationError: Other users may change what is in it.
        OSError: The system refuses.
    """
    make_folder(path)
    check_home(path)  # Again: another user may have been first.


def check_home(path: str) -> None:
    """Make sure that only this user and root may change what is in the home *path*, if it is there.

    Folders that earlier versions made for others to read are made private. ACLs are not looked at, nor
    is the group of folders above: who is in it is trusted.

    Raises:
        ConfigurationError: Others may; the hint has the command that ends it.
    """
    _refuse_replaceable(path)
    private = [f"{path}/{name}" for name in _FOLDERS]
    open_to_all = []
    for folder in (path, f"{path}/{_STORE}", *private):
        found = _stat(folder)
        if found is None:
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise _not_ours(folder, found.st_uid)
        if others_may_write(found):
            open_to_all.append((folder, stat.S_IMODE(found.st_mode)))
        elif folder in private and found.st_mode & 0o077:
            with suppress(OSError):  # It is root's, or on a file system without modes.
                os.chmod(folder, FOLDER_MODE)  # noqa: PTH101 - light
    if open_to_all:
        seen = ", ".join(f"{folder} (mode {mode:04o})" for folder, mode in open_to_all)
        folders = shlex.join(folder for folder, _ in open_to_all)
        raise ConfigurationError(
            f"Other users may change what Kinetic keeps for you, and runs: {seen}.",
            hint=f"Run: chmod go-w {folders}\nIf that changes nothing, name another folder with "
            "KINETIC_HOME. If other users of this machine are not trusted, remove that folder instead.",
        )


def _refuse_replaceable(path: str) -> None:
    """Make sure that not everybody may put another folder in the place of *path*."""
    for above in {*_above(path), *_above(os.path.realpath(path))}:
        found = _stat(above)
        # In a folder with the sticky bit, /tmp for instance, everybody may rename their own only.
        if found is not None and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise ConfigurationError(
                f"Other users may replace {path}, from which Kinetic runs code: {above} above it can be "
                f"changed by everybody (mode {stat.S_IMODE(found.st_mode):04o}).",
                hint=f"Run: chmod o-w {shlex.quote(above)}\n{_OR_ANOTHER}",
            )


def _above(path: str) -> Iterator[str]:
    above = os.path.dirname(path)  # noqa: PTH120 - light
    while above != path:
        yield above
        path, above = above, os.path.dirname(above)  # noqa: PTH120 - light


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - light
    except OSError:
        return None  # Not there, or not to be reached: whoever needs it finds out.


def _not_ours(path: str, owner: int) -> ConfigurationError:
    return ConfigurationError(
        f"{path} belongs to user {owner}, who may change what Kinetic keeps for you (user "
        f"{os.geteuid()}), and runs.",
        hint=f"Run: sudo chown -R {os.geteuid()} {shlex.quote(path)}\n{_OR_ANOTHER}",
    )
