"""`StatCache`: digests of files, kept between runs while the files do not change."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kinetic_payload.files.private import make_folder, read_private, write_private

_YOUNG_NS: Final = 2_000_000_000
"""The coarsest file times, those of FAT, are steps of two seconds."""
_FORMAT: Final = b"4\n"
"""Prefix of the hashed contents."""


class Hashed(NamedTuple):
    """The result of hashing one file."""

    relpath: str
    digest: str
    size: int
    """The bytes that went into the digest."""
    status: os.stat_result
    """The status of the open file, taken before its first byte was read."""
    lasting: bool
    """Whether the digest holds for as long as the file's stamp is that of `status`."""


class StatCache:
    """Digests by relative path, valid while size, times and inode are unchanged.

    A file that was younger than two seconds when it was read could change again without a new stamp. It is
    never added. One cache serves one root. Processes may share the cache file: it is replaced
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


def is_old(status: os.stat_result, now_ns: int) -> bool:
    """Return whether a write after *now_ns* will change the times of the file with this *status*."""
    return max(status.st_mtime_ns, status.st_ctime_ns) + _YOUNG_NS < now_ns


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
