"""A private view of the file system, in which folders appear at paths that need not exist.

Linux only: a mount namespace, below a user namespace if this user is not root. If a path is missing, the
deepest folder above it that exists is covered by a small read-only tmpfs, in which every entry of that
folder is bound to itself, so nothing is ever written to the machine's own file system.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic_payload.errors import DataError

if TYPE_CHECKING:
    import ctypes

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_MS_RDONLY: Final = 0x1
_MS_REMOUNT: Final = 0x20
_MS_BIND: Final = 0x1000
_MS_MOVE: Final = 0x2000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000

_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_ATTR_RDONLY: Final = 0x1

_HINT: Final = "Pass the Data as an argument of the function instead of mounting it as a volume."
_COPY: Final = "Leave fuse=True out: the data is copied instead."


@cache
def why_not_private() -> str | None:
    """Return why this system does not allow private mounts, or None if it does.

    The answer comes from a trial in a process of its own.
    """
    return _trial_error("probe()")


@cache
def why_not_read_only() -> str | None:
    """Return why this system cannot show folders read-only at other paths, or None if it can."""
    return why_not_private() or _trial_error("probe(read_only=True)")


def _trial_error(call: str) -> str | None:
    if not sys.platform.startswith("linux"):
        system = "macOS" if sys.platform == "darwin" else sys.platform
        return f"{system} has no private mount namespaces"
    import subprocess

    import kinetic_payload
    import kinetic_runner

    code = f"import sys; sys.path[:0] = sys.argv[1:]\nfrom kinetic_runner.data.mounts import probe\n{call}"
    # Import from these paths only: `site` and the user's environment could take time, or change the result.
    paths = [
        os.path.dirname(os.path.dirname(os.path.abspath(str(file))))  # noqa: PTH100, PTH120
        for file in (kinetic_runner.__file__, kinetic_payload.__file__)
    ]
    trial = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *paths],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if trial.returncode == 0:
        return None
    lines = trial.stderr.strip().splitlines()
    return lines[-1] if lines else f"the trial ended with status {trial.returncode}"


def probe(*, read_only: bool = False) -> None:
    """Try private mounts in this process; exit with a reason on stderr if that fails."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kinetic-mounts-") as folder:
        # `folder` is in the machine's own file system, so it is removed there as well.
        point = Path(f"/kinetic-probe-{os.getpid()}")
        try:
            enter({str(point): Path(folder)}, read_only=[str(point)] if read_only else ())
        except (DataError, OSError) as error:
            sys.exit(error.message if isinstance(error, DataError) else str(error))
        if not point.samefile(folder):
            sys.exit("a folder that was bound does not appear")
        if read_only and not os.statvfs(point).f_flag & os.ST_RDONLY:
            sys.exit("a folder that was bound read-only can be written to")


def enter(binds: Mapping[str, Path], *, read_only: Collection[str] = ()) -> None:
    """Give this process, and its children, a view in which each path of *binds* shows its folder.

    The folders (or files) must exist; the view shows what is written to them later. They are bound in the
    order given, and the paths of *read_only* cannot be written to. Call this before threads start: it changes
    the namespace of the current thread only.

    Raises:
        DataError: The system does not allow it, or a path cannot be covered.
    """
    cwd = Path.cwd()
    gained_capabilities = _unshare()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    points = [
        _Point.at(path, source, read_only=path in read_only) for path, source in binds.items()
    ]
    for point in points:
        if point.exists:
            _show(point, str(point.path))
    missing: dict[Path, list[_Point]] = {}
    for point in points:
        if not point.exists:
            missing.setdefault(point.anchor, []).append(point)
    # The deepest first: the mirror of a folder higher up then includes the finished mirrors below it.
    for anchor in sorted(missing, key=lambda folder: len(folder.parts), reverse=True):
        _cover(anchor, missing[anchor])
    for point in points:
        os.close(point.source)
    os.chdir(cwd)
    if gained_capabilities:
        # User code must have the same access to files as outside of the user namespace.
        import ctypes

        # Version 3 of the interface; 0 is this process. Effective, permitted and inheritable, 2 x 32 bits each.
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        if _libc().capset(header, (ctypes.c_uint32 * 6)()) != 0:
            raise _system_error("give up capabilities")


@dataclass(frozen=True)
class _Point:
    """One path to cover, with symbolic links on the way to it followed."""

    source: int
    """A descriptor, because the path may be covered before it is bound."""
    path: Path
    is_dir: bool
    exists: bool
    """Whether a folder or file of the same kind is there, over which this one can simply be mounted."""
    read_only: bool

    @classmethod
    def at(cls, path: str, source: Path, *, read_only: bool) -> _Point:
        target = Path(os.path.realpath(path))
        try:
            descriptor = os.open(source, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise DataError(
                f"{source} cannot be shown at {path}: {error.strerror}.",
                hint=_COPY if read_only else _HINT,
            ) from error
        is_dir = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        same = target.is_dir() if is_dir else target.exists() and not target.is_dir()
        return cls(descriptor, target, is_dir, same, read_only)

    @property
    def anchor(self) -> Path:
        """The deepest folder on the way that exists."""
        return next(parent for parent in self.path.parents if parent.is_dir())


def _cover(anchor: Path, points: Sequence[_Point]) -> None:
    """Cover *anchor* with a mirror of itself that also holds *points*."""
    mode = f"mode={stat.S_IMODE(anchor.stat().st_mode):o}"
    if anchor != Path("/"):
        # Read its entries through a descriptor, because its path is covered by now.
        below = os.open(anchor, os.O_RDONLY | os.O_DIRECTORY)
        _mount("tmpfs", str(anchor), "tmpfs", 0, mode)
        _fill(f"/proc/self/fd/{below}", str(anchor), anchor, points)
        os.close(below)
        return
    # A root cannot be covered and read in one step. The mirror is made on some folder, then
    # moved over the root; until `chroot` this process still sees what lies below.
    folders = (each for each in os.scandir("/") if each.is_dir(follow_symlinks=False))
    stage = next(each.path for each in folders if each.name != "proc")
    _mount("tmpfs", stage, "tmpfs", 0, mode)
    mirror = os.open(stage, os.O_RDONLY | os.O_DIRECTORY)
    _mount(stage, "/", None, _MS_MOVE)
    _fill("/", f"/proc/self/fd/{mirror}", anchor, points)
    os.fchdir(mirror)
    os.chroot(".")
    os.close(mirror)


def _fill(below: str, mirror: str, anchor: Path, points: Sequence[_Point]) -> None:
    covered = {point.path.relative_to(anchor).parts[0] for point in points}
    for entry in os.scandir(below):
        if entry.name in covered:  # It exists, but is of the wrong kind.
            continue
        _mirror(entry, f"{mirror}/{entry.name}")
    for point in points:
        target = f"{mirror}/{point.path.relative_to(anchor)}"
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        _make(target, is_dir=point.is_dir)
        _show(point, target)
    # Files written into the mirror would be lost silently.
    _mount(None, mirror, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def _mirror(entry: os.DirEntry[str], target: str) -> None:
    """Show *entry* at *target*, unless it vanished since its folder was listed."""
    is_dir = entry.is_dir(follow_symlinks=False)
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)  # noqa: PTH115, PTH211 - keeps the target unchanged
            return
        _make(target, is_dir=is_dir)
        _mount(entry.path, target, None, _MS_BIND | _MS_REC)
    except (DataError, FileNotFoundError):
        if os.path.lexists(entry.path):
            raise
        if os.path.lexists(target):
            (os.rmdir if is_dir else os.unlink)(target)


def _make(target: str, *, is_dir: bool) -> None:
    if is_dir:
        os.mkdir(target)  # noqa: PTH102
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))


def _show(point: _Point, target: str) -> None:
    """Mount *point* at *target*, with the mounts below it."""
    _mount(f"/proc/self/fd/{point.source}", target, None, _MS_BIND | _MS_REC)
    if not point.read_only:
        return
    import ctypes

    # Flags to set, flags to clear, propagation, user namespace. A remount would change only the topmost
    # mount, and is refused unless it repeats flags that others have set.
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY)
    done = _libc().syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    if done != 0:
        what = f"protect {target} from being written to (this takes Linux 5.12)"
        raise _system_error(what, _COPY)


def _unshare() -> bool:
    """Leave the machine's mount namespace; return whether capabilities of a user namespace must be dropped."""
    uid, gid = os.geteuid(), os.getegid()
    libc = _libc()
    if libc.unshare(_CLONE_NEWNS) == 0:
        return False
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        raise _system_error("make a private mount namespace")
    try:
        # An unprivileged process may map its group only after it has disabled changing groups.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        raise DataError(f"Could not set up a user namespace: {error}.", hint=_HINT) from error
    return uid != 0


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    done = _libc().mount(
        os.fsencode(source) if source is not None else None,
        os.fsencode(target),
        kind.encode() if kind is not None else None,
        flags,
        data.encode() or None,
    )
    if done != 0:
        raise _system_error(f"mount {source or kind or 'it again'} on {target}")


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.c_char_p
    libc.mount.argtypes = (text, text, text, ctypes.c_ulong, text)
    return libc


def _system_error(what: str, hint: str = _HINT) -> DataError:
    import ctypes

    return DataError(f"Could not {what}: {os.strerror(ctypes.get_errno())}.", hint=hint)
