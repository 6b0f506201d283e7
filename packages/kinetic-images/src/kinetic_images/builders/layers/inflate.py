"""Inflate entries of zip files with isal, in a third of the time that `zipfile` takes."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, Final

try:
    from isal import isal_zlib
except ImportError:  # Other Pythons than CPython.
    isal_zlib = None  # type: ignore[assignment]

_CHUNK: Final = 1 << 20
_HEADER: Final = struct.Struct("<4s22xHH")
_ENCRYPTED: Final = 1


def content_of(
    archive: zipfile.ZipFile, stream: BinaryIO, info: zipfile.ZipInfo
) -> Iterator[bytes]:
    """Yield the bytes of the entry *info* of *archive*, whose file *stream* is another open file.

    Raises:
        zipfile.BadZipFile: They end early, or their checksum is wrong.
        isal_zlib.error, zlib.error: They cannot be inflated.
        NotImplementedError, RuntimeError: They are encrypted, or compressed in an unknown way.
    """
    plain = not info.flag_bits & _ENCRYPTED and info.compress_type == zipfile.ZIP_DEFLATED
    if isal_zlib is not None and plain:
        yield from _inflated(stream, info)
        return
    left = info.file_size
    with archive.open(info) as entry:
        while data := entry.read(_CHUNK):
            left -= len(data)
            yield data
    if left:
        raise zipfile.BadZipFile("it ends early")


def _inflated(stream: BinaryIO, info: zipfile.ZipInfo) -> Iterator[bytes]:
    stream.seek(info.header_offset)
    header = stream.read(_HEADER.size)
    if len(header) != _HEADER.size or not header.startswith(b"PK\3\4"):
        raise zipfile.BadZipFile("it has no header")
    _, name, extra = _HEADER.unpack(header)
    stream.seek(name + extra, 1)
    decompressor = isal_zlib.decompressobj(-15)
    left, size, crc = info.compress_size, 0, 0
    while left and not decompressor.eof:
        data = stream.read(min(_CHUNK, left))
        if not data:
            raise zipfile.BadZipFile("it ends early")
        left -= len(data)
        piece = b""
        # A full piece may leave more to come, although all of the data is consumed.
        while data or (len(piece) == _CHUNK and not decompressor.eof):
            # The limit keeps memory small, whatever the content inflates to.
            piece = decompressor.decompress(data, _CHUNK)
            data = decompressor.unconsumed_tail
            size += len(piece)
            crc = isal_zlib.crc32(piece, crc)
            if size > info.file_size:
                raise zipfile.BadZipFile("it is longer than its header says")
            if piece:
                yield piece
    if not decompressor.eof or size != info.file_size:
        raise zipfile.BadZipFile("it ends early")
    if crc != info.CRC:
        raise zipfile.BadZipFile("its checksum is wrong")
