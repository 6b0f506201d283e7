"""What a submit reports, and to whom; warnings of what is not shipped, and of who else may write to the store."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.console import progress_beside
from kinetic.user_warnings import caller_warning
from kinetic_payload.files.private import others_may_write
from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic.console import Console
    from kinetic_payload.progress import TrackProgress
    from kinetic_payload.project.snapshot import Snapshot
    from kinetic_payload.stores.store import Location

_log = logging.getLogger("kinetic")


@frozen()
class Notices:
    """What a submit reports, from any thread. Warnings reach every caller, all else a console, or else the log."""

    warn: Callable[[str], None]
    """Something that may change the result, or cost time or money."""
    phase: Callable[[str], None]
    """The step that begins, or that has ended."""
    step: Callable[[str], None]
    """A step of what takes minutes, such as the build of an image; a file shows it as well."""
    track: TrackProgress
    """Work on bytes. Long transfers are shown on a terminal even without a console."""

    @classmethod
    def to(cls, console: Console | None) -> Notices:
        """Return the notices of a submit with *console*; without one, warnings are issued at the caller's line."""
        if console is None:
            return cls(caller_warning(), _log.info, _log.info, progress_beside(_log.info))
        return cls(console.note, console.phase, console.step, console.progress)


def shared_store_warning(location: Location) -> str | None:
    """Return a warning if *location* is a folder that other users may write to."""
    try:
        if location.kind != "folder" or not others_may_write(Path(location.path).stat()):
            return None
    except OSError:  # It does not exist yet.
        return None
    return (
        f"other users may write to the store {location.path}, and so run code in processes that read "
        f"results. Unless you trust them, run: chmod go-w {shlex.quote(location.path)}"
    )


def no_project_warning(cwd: Path) -> str:
    """Return the warning that no files are shipped; *cwd* is the working directory."""
    return (
        f"no files are shipped: the function was not read from a file, and {cwd} is no project; "
        "start Python in the project's folder, or set KINETIC_PACKAGE_ROOT, to ship one"
    )


def left_out_warning(snapshot: Snapshot | None) -> str | None:
    """Return a warning that names what was left out of *snapshot*, if something was."""
    if snapshot is None:
        return None
    # Files that are shipped as data need no warning.
    left_out = [item for item in snapshot.left_out if item.rule != "data"]
    if not left_out:
        return None
    _log.info("Left out of the snapshot, and why: %s", left_out)
    few = ", ".join(item.path for item in left_out[:3])
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"left out of the snapshot of {snapshot.root}: {few}{more}"
