"""Write a tree as a zip file: streaming, on all cores.

The file's bytes depend on the compressor at hand; the tree's digest does not.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kinetic_payload.archives.zip_format import (
    DEFLATED,
    STORED,
    Member,
    central_header,
    end_records,
    local_header,
)
from kinetic_payload.digests import CHUNK, FileHasher, TreeEntry, encoded, open_regular
from kinetic_payload.errors import TreeChangedError
from kinetic_payload.threads import batches, cores

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_SAMPLE: Final = 64 * 1024
_TINY: Final = 64
"""Bytes up to which a file is stored: a header outweighs any gain."""
_GAIN: Final = 0.97
"""A file whose beginning does not shrink to less than this share is stored as it is."""
_GROUP_FILES: Final = 64
_IN_FLIGHT: Final = 16 * CHUNK
"""Bytes read but not yet written, at most; this is what bounds memory."""
_LAST_BLOCK: Final = b"\x03\x00"


def write_archive(stream: BinaryIO, root: Path, entries: Iterable[TreeEntry]) -> int:
    """Write the *entries* of the tree at *root* into *stream* and return the archive's size.

    The stream is seekable. Contents are verified against the digests of *entries*.

    Raises:
        TreeChangedError: A file changed after its digest was taken; the message names it.
    """
    with ExitStack() as stack:
        writer = _Writer(stream, str(root), stack)
        groups = list(batches(entries, attrgetter("size"), most=_GROUP_FILES, size=CHUNK))
        if len(groups) <= 1 and sum(entry.size for group in groups for entry in group) <= CHUNK:
            # Too little work to be worth starting threads.
            for group in groups:
                writer.write_members(writer.compress(group))
        else:
            writer.start_threads()
            for group in groups:
                writer.add(group)
        return writer.finish()


class _Writer:
    """Read in order, compress in parallel, write in order."""

    def __init__(self, stream: BinaryIO, root: str, stack: ExitStack) -> None:
        self._stream = stream
        self._root = root
        self._stack = stack
        self._directory: list[bytes] = []
        self._offset = 0
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        self._in_flight = 0
        self._pool: Executor
        self._hash_thread: Executor
        self._deflater = _Deflater()
        self._crc = self._deflater.crc

    def start_threads(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        # What is in flight when writing fails is little: it need not be cancelled.
        pool = ThreadPoolExecutor(max(2, cores()), "kinetic-archive")
        self._pool = self._stack.enter_context(pool)
        # One thread, so that the pieces of a file are hashed in order.
        one = ThreadPoolExecutor(1, "kinetic-archive-hash")
        self._hash_thread = self._stack.enter_context(one)

    def add(self, group: list[TreeEntry]) -> None:
        """Add *group*; write what is ready once enough is in flight."""
        size = sum(entry.size for entry in group)
        if len(group) == 1 and size > CHUNK:
            self._add_large(group[0])
        else:
            members = self._pool.submit(self.compress, group)
            self._enqueue(size + CHUNK // 16, lambda: self.write_members(members.result()))

    def _enqueue(self, cost: int, write: Callable[[], None]) -> None:
        self._pending.append((cost, write))
        self._in_flight += cost
        while self._in_flight > _IN_FLIGHT:
            self._write_next()

    def _write_next(self) -> None:
        cost, write = self._pending.popleft()
        write()
        self._in_flight -= cost

    def compress(self, group: list[TreeEntry]) -> list[tuple[Member, bytes]]:
        """Read and compress small entries; runs in any thread."""
        members = []
        for entry in group:
            member = Member(entry.path, entry.kind, entry.mode, digest=entry.digest)
            if entry.kind == "file":
                data = b"".join(_pieces(self._root, entry))
                hasher = FileHasher(entry.path)
                hasher.update(data)
                _must_match(entry, hasher)
            else:
                data = encoded(entry.target)  # Of a folder it is empty.
            member.size, member.crc = len(data), self._crc(data)
            if entry.kind == "file" and (deflated := self._deflater.whole(data)) is not None:
                member.method, data = DEFLATED, deflated
            member.compressed = len(data)
            members.append((member, data))
        return members

    def _add_large(self, entry: TreeEntry) -> None:
        member = Member(entry.path, "file", entry.mode, size=entry.size, digest=entry.digest)
        hasher = FileHasher(entry.path)

        def begin() -> None:
            member.offset = self._offset
            self._write(local_header(member))  # Incomplete until `end`, but of its length.

        def write(data: bytes) -> None:
            member.compressed += len(data)
            self._write(data)

        def write_done(piece: bytes, hashed: Future[None], deflated: Future[bytes] | None) -> None:
            hashed.result()
            write(piece if deflated is None else deflated.result())

        def end() -> None:
            _must_match(entry, hasher)
            if member.method == DEFLATED:
                write(_LAST_BLOCK)
            self._stream.seek(member.offset)
            self._stream.write(local_header(member))
            self._stream.seek(self._offset)
            self._directory.append(central_header(member))

        begun = False
        for piece in _pieces(self._root, entry):
            if not begun:
                begun = True
                member.method = DEFLATED if self._deflater.shrinks(piece) else STORED
                self._enqueue(0, begin)
            member.crc = self._crc(piece, member.crc)
            hashed = self._hash_thread.submit(hasher.update, piece)
            deflated = (
                self._pool.submit(self._deflater.piece, piece)
                if member.method == DEFLATED
                else None
            )
            self._enqueue(2 * len(piece), partial(write_done, piece, hashed, deflated))
        self._enqueue(0, end)

    def write_members(self, members: list[tuple[Member, bytes]]) -> None:
        parts: list[bytes] = []
        for member, data in members:
            member.offset = self._offset
            header = local_header(member)
            self._offset += len(header) + len(data)
            parts += (header, data)
            self._directory.append(central_header(member))
        # Join many small files into one write, but do not copy a single file for that.
        for part in parts if len(members) == 1 else (b"".join(parts),):
            self._stream.write(part)

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._offset += len(data)

    def finish(self) -> int:
        while self._pending:
            self._write_next()
        start = self._offset
        directory = b"".join(self._directory)
        self._write(directory)
        self._write(end_records(len(self._directory), start, len(directory)))
        return self._offset


class _Deflater:
    """Deflate at level 1 with the fastest library available, in independent pieces.

    A piece lacks only the last block, so pieces that are made in parallel can be concatenated.
    """

    def __init__(self) -> None:
        self._library: Any
        try:
            from isal import isal_zlib

            self._library = isal_zlib
        except ImportError:
            self._library = zlib
        self.crc: Callable[..., int] = self._library.crc32

    def piece(self, data: bytes) -> bytes:
        """Return *data* as one piece."""
        compressor = self._library.compressobj(1, DEFLATED, -15)
        compressed: bytes = compressor.compress(data) + compressor.flush(self._library.Z_SYNC_FLUSH)
        return compressed

    def shrinks(self, data: bytes) -> bool:
        """Return whether deflating is worth its time, judging by the beginning of *data*."""
        sample = data[:_SAMPLE]
        return len(self.piece(sample)) < _GAIN * len(sample)

    def whole(self, data: bytes) -> bytes | None:
        """Return all of a small file, last block included; None if it is better stored."""
        if len(data) <= _TINY or (len(data) > _SAMPLE and not self.shrinks(data)):
            return None
        compressed = self.piece(data) + _LAST_BLOCK
        return compressed if len(compressed) < len(data) else None


def _pieces(root: str, entry: TreeEntry) -> Iterator[bytes]:
    """Yield the contents of *entry*, up to the size that was hashed.

    A file that only grew since, such as a log, is accepted.
    """
    left = entry.size
    try:
        file = open_regular(f"{root}/{entry.path}")
        try:
            while left and (data := os.read(file, min(left, CHUNK))):
                left -= len(data)
                yield data
        finally:
            os.close(file)
    except OSError as error:
        raise _changed(entry.path) from error


def _must_match(entry: TreeEntry, hasher: FileHasher) -> None:
    if hasher.hexdigest() != entry.digest:
        raise _changed(entry.path)


def _changed(path: str) -> TreeChangedError:
    return TreeChangedError(
        f"{path!r} changed while it was being packaged.",
        hint="Run it again. If a file of a project keeps changing, exclude it with a line in .kineticignore.",
    )
