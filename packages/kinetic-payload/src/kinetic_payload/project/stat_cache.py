"""`StatCache`: digests of files that did not change since they were read, from one run to the next."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kinetic_payload.files.private import make_folder, read_private, write_private

_FINE: Final = 100_000_000
"""Nanoseconds. Kernels stamp files with the time of their last tick, which is at most 10 ms old."""
_COARSE: Final = 2_500_000_000
"""Where stamps are whole seconds (HFS+, some network mounts) or even seconds (FAT)."""
_SECOND: Final = 1_000_000_000
_SLOWEST: Final = 20_000_000
"""Bytes a second that a disk takes at least from one `write`."""
_LONGEST: Final = 2 << 30
"""Bytes that the system takes in one `write`."""
_FORMAT: Final = b"4\n"
"""Begins what is hashed. Earlier ones trusted times of files that were mapped, or being written."""


class Hashed(NamedTuple):
    """What reading one file gave."""

    relpath: str
    digest: str
    size: int
    """The bytes that went into the digest."""
    status: os.stat_result
    """Of the very file that was read, taken before the first byte."""
    settled: bool
    """Nothing wrote to the file while it was read, and its times will tell if something does."""
    started_ns: int
    """The clock before anything was looked at: who has the file mapped, then the file."""

    @property
    def lasting(self) -> bool:
        """Whether the digest holds for as long as the file's stamp is that of `status`."""
        status = self.status
        youngest = max(status.st_mtime_ns, status.st_ctime_ns)
        whole = status.st_mtime_ns % _SECOND == 0 and status.st_ctime_ns % _SECOND == 0
        # Whatever is begun to be written after that clock gets a stamp of that moment or later, less
        # a tick; only if the stamp we saw is older than that can a later write not look the same.
        margin = (_COARSE if whole else _FINE) + _writing_ns(status.st_size)
        return self.settled and youngest + margin < self.started_ns


class StatCache:
    """Digests by relative path, valid while size, times and inode are what they were.

    A file whose stamp is so young that it could change again without the stamp changing is never
    taken into the cache, so a hit is as good as a read. One cache serves one root. Processes may
    share the file: it is replaced atomically, and one that is damaged counts as empty.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, str] | None = None
        """Of each path: the stamp, then the digest. One text each is read fastest."""
        self._fresh: dict[str, str] = {}

    @classmethod
    def of(cls, root: Path, folder: Path) -> StatCache:
        """Return the cache of *root* in *folder* (`KINETIC_HOME/cache`)."""
        # Earlier versions wrote `stat-*.json`, in some cases for all users to change.
        return cls(folder / f"digests-{_sha256(os.fsencode(root))[:32]}.json")

    def get(self, relpath: str, status: os.stat_result) -> str | None:
        """Return the digest of *relpath* if the file with this *status* was read before."""
        if self._entries is None:
            self._entries = self._load()
        entry = self._entries.get(relpath)
        if entry is None or not entry.startswith(stamp := stamp_of(status)):
            return None
        self._fresh[relpath] = entry
        return entry[len(stamp) :]

    def put(self, hashed: Hashed) -> None:
        """Remember *hashed*, unless the file may change again without its times changing."""
        if hashed.lasting:
            self._fresh[hashed.relpath] = stamp_of(hashed.status) + hashed.digest

    def save(self) -> None:
        """Write what was seen since the cache was opened; files that are gone are forgotten."""
        if self._entries is not None and self._fresh == self._entries:
            return
        body = json.dumps(self._fresh).encode()
        # The cache only saves time: a full disk or a read-only home must not end a submit.
        with suppress(OSError):
            make_folder(self._file.parent)
            write_private(self._file, _sha256(_FORMAT + body).encode() + b"\n" + body)
        self._entries = dict(self._fresh)

    def _load(self) -> dict[str, str]:
        try:
            digest, _, body = read_private(self._file).partition(b"\n")
        except OSError:
            return {}
        if _sha256(_FORMAT + body).encode() != digest:
            return {}
        entries: dict[str, str] = json.loads(body)
        return entries


def stamp_of(status: os.stat_result) -> str:
    """Return what of *status* changes when the file's contents do: size, times, inode."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} "


def _writing_ns(size: int) -> int:
    """Return how long one `write` into a file of *size* bytes may take.

    It changes the times when it begins, and not when it ends.
    """
    return min(size, _LONGEST) * _SECOND // _SLOWEST


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
