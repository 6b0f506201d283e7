"""`StatCache`: digests of files, kept between runs while the files do not change."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kinetic_payload.files.private import make_folder, read_private, write_private

_FINE: Final = 100_000_000
"""Nanoseconds. File times are those of the kernel's last tick, which is at most 10 ms old."""
_COARSE: Final = 2_500_000_000
"""Nanoseconds, for file systems with times in whole seconds (HFS+, some network mounts) or in steps of
two (FAT)."""
_SECOND: Final = 1_000_000_000
_SLOWEST: Final = 20_000_000
"""Bytes per second that even a slow disk writes."""
_LONGEST: Final = 2 << 30
"""The most bytes that one `write` can take."""
_FORMAT: Final = b"4\n"
"""Prefix of the hashed contents. Earlier formats trusted times of files that were mapped or being written."""


class Hashed(NamedTuple):
    """The result of hashing one file."""

    relpath: str
    digest: str
    size: int
    """The bytes that went into the digest."""
    status: os.stat_result
    """The status of the open file, taken before its first byte was read."""
    settled: bool
    """The file did not change while it was read, and its times will show a later change."""
    started_ns: int
    """The clock before the maps of processes, and then the file, were read."""

    @property
    def lasting(self) -> bool:
        """Whether the digest holds for as long as the file's stamp is that of `status`."""
        status = self.status
        youngest = max(status.st_mtime_ns, status.st_ctime_ns)
        whole = status.st_mtime_ns % _SECOND == 0 and status.st_ctime_ns % _SECOND == 0
        # A write that begins after `started_ns` sets the times to that moment, less a tick, or to a
        # later one. So if the times that were read are older than that, any later write changes them.
        margin = (_COARSE if whole else _FINE) + _writing_ns(status.st_size)
        return self.settled and youngest + margin < self.started_ns


class StatCache:
    """Digests by relative path, valid while size, times and inode are unchanged.

    A file with a very recent stamp could change again without a new stamp. It is never added, so a hit
    is as good as a read. One cache serves one root. Processes may share the cache file: it is replaced
    atomically, and a damaged one counts as empty.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, str] | None = None
        """By path: the stamp and the digest, as one string, since that loads fastest."""
        self._fresh: dict[str, str] = {}

    @classmethod
    def of(cls, root: Path, folder: Path) -> StatCache:
        """Return the cache of *root* in *folder* (`KINETIC_HOME/cache`)."""
        # Earlier versions wrote `stat-*.json`, in some cases writable for all users.
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
        """Add *hashed*, unless the file may change without a change of its times."""
        if hashed.lasting:
            self._fresh[hashed.relpath] = stamp_of(hashed.status) + hashed.digest

    def save(self) -> None:
        """Write the entries that were used or added since the cache was opened; others are dropped."""
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
    """Return the parts of *status* that change with the file's contents: size, times, inode."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} "


def _writing_ns(size: int) -> int:
    """Return how long one `write` into a file of *size* bytes may take.

    The times change when the write begins, and not when it ends.
    """
    return min(size, _LONGEST) * _SECOND // _SLOWEST


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
