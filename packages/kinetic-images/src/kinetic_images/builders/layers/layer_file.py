"""Layer files: deterministic `tar.gz` files, written as a stream, and their two digests."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final

from kinetic_images.builders.image_layout import LAYER_PREFIX

_PIECE: Final = 256 << 10
"""Bytes that are hashed and compressed at a time: always as many, because isal's output depends on that."""
_LEVEL: Final = 2
"""The level of compression. Of isal's, it is the best ratio of speed to size."""
_BLOCK: Final = 512
_RECORD: Final = 20 * _BLOCK


@dataclass(frozen=True, kw_only=True)
class LayerBlob:
    """A finished layer."""

    digest: str
    """The digest of the compressed file, `sha256:…`: its name in a registry."""
    diff_id: str
    """The digest of the uncompressed file, which the image's configuration names."""
    size: int
    """The size of the compressed file in bytes."""


class LayerWriter:
    """Writes files into a layer. They belong to root and have no time, so equal files make equal layers."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._compressor = _compressor()
        self._plain = hashlib.sha256()
        self._compressed = hashlib.sha256()
        self._pending = bytearray()
        self._folders: set[str] = set()
        self._plain_size = 0
        self._size = 0

    def add(
        self, path: str, size: int, content: Iterable[bytes], *, executable: bool = False
    ) -> None:
        """Add a file of *size* bytes with mode 0644, or 0755 if it is *executable*.

        Those of its folders that are Kinetic's are added too, with mode 0755.

        Raises:
            ValueError: *content* has another size.
        """
        for folder in reversed([*map(str, PurePosixPath(path).parents)]):
            if folder not in self._folders and f"{folder}/".startswith(f"{LAYER_PREFIX}/"):
                self._folders.add(folder)
                self._header(folder, tarfile.DIRTYPE, 0, 0o755)
        self._header(path, tarfile.REGTYPE, size, 0o755 if executable else 0o644)
        left = size
        for data in content:
            left -= len(data)
            if left < 0:
                break
            self._write(data)
        if left:
            raise ValueError(f"{path} does not have the expected {size} bytes")
        self._write(b"\0" * (-size % _BLOCK))

    def finish(self) -> LayerBlob:
        """Write the end of the file and return its digests."""
        end = self._plain_size + 2 * _BLOCK
        self._write(b"\0" * (2 * _BLOCK + -end % _RECORD))
        self._compress(self._pending)
        self._store(self._compressor.flush())
        return LayerBlob(
            digest=f"sha256:{self._compressed.hexdigest()}",
            diff_id=f"sha256:{self._plain.hexdigest()}",
            size=self._size,
        )

    def _header(self, path: str, kind: bytes, size: int, mode: int) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.size, info.mode = kind, size, mode
        self._write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _write(self, data: bytes) -> None:
        self._plain_size += len(data)
        self._pending += data
        while len(self._pending) >= _PIECE:
            self._compress(self._pending[:_PIECE])
            del self._pending[:_PIECE]

    def _compress(self, piece: bytearray) -> None:
        self._plain.update(piece)
        self._store(self._compressor.compress(piece))

    def _store(self, data: bytes) -> None:
        self._compressed.update(data)
        self._size += len(data)
        self._stream.write(data)


def _compressor() -> Any:
    # 31: with the header of gzip, which has no name and no time.
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compressobj(6, zlib.DEFLATED, 31)
    return isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, 31)
