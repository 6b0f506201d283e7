"""Files in an image, as far as the layers of a small image show them."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from time import monotonic, thread_time
from typing import BinaryIO, Final

from kinetic_images.registry.oci import Descriptor
from kinetic_images.registry.repository import RemoteImage, Repository

_LARGEST_IMAGE: Final = 32 << 20
"""The most compressed bytes that are downloaded. Images of Linux distributions without Python are smaller."""
_MOST_LAYERS: Final = 127
"""Docker runs no image with more."""
_LARGEST_CONTENT: Final = 512 << 20
"""The most uncompressed bytes of all layers that are read."""
_LARGEST_HEADER: Final = 64 << 10
"""The most bytes of an extended header, which may contain a long path."""
_SECONDS: Final = 5.0
"""The most seconds of this thread's CPU time."""
_WAIT_SECONDS: Final = 60.0
"""The most seconds until the registry has sent what is read, checked between two pieces."""
_PIECE: Final = 16 << 10
_BLOCK: Final = 512
_EXTENDED: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def has_program(
    image: RemoteImage,
    repository: Repository,
    name: str,
    *,
    clock: Callable[[], float] = thread_time,
) -> bool | None:
    """Return whether a file *name* is in a folder of *image*, whichever; None if that is not known.

    False is certain. The layers of a large image are not downloaded, and those that cost much memory or time
    are not read to their end, so nothing is known of them.

    Raises:
        RegistryError: The registry cannot be queried, or returned other bytes.
    """
    layers = image.manifest.layers
    if len(layers) > _MOST_LAYERS or sum(layer.size for layer in layers) > _LARGEST_IMAGE:
        return None
    # In a header, or in an extended header. What only looks like a path may match as well: that is not certain, either.
    wanted = re.compile(rb"(?:^|[/=])%b(?:[\n\0]|$)" % re.escape(name.encode()))
    left, cpu_end, wait_end = _LARGEST_CONTENT, clock() + _SECONDS, monotonic() + _WAIT_SECONDS

    def limited(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal left
        for piece in pieces:
            left -= len(piece)
            if left < 0 or clock() > cpu_end or monotonic() > wait_end:
                raise tarfile.ReadError("The layers are too large to be read.")
            yield piece

    def has(layer: Descriptor) -> bool:
        with closing(repository.open_blob(layer.digest, layer.size)) as stream:
            return any(map(wanted.search, _paths(limited(_inflated(stream)))))

    try:
        return any(map(has, reversed(layers)))
    except (tarfile.TarError, zlib.error):
        return None  # For instance another compression.


def _paths(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the paths in a tar file, and its extended headers, as they are in the file.

    `tarfile.open` reads extended headers of any size into memory, and keeps all entries.
    """
    pending = bytearray()

    def read(size: int) -> bytes:
        while len(pending) < size:
            piece = next(pieces, None)
            if piece is None:
                raise tarfile.ReadError("The layer ends early.")
            pending.extend(piece)
        data = bytes(pending[:size])
        del pending[:size]
        return data

    while (header := read(_BLOCK)).strip(b"\0"):
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        size = -(-entry.size // _BLOCK) * _BLOCK
        if entry.type in _EXTENDED:
            if size > _LARGEST_HEADER:
                raise tarfile.ReadError("An extended header is too large to be read.")
            yield read(size)
            continue
        yield header[:100]
        if not (entry.isdir() or entry.islnk() or entry.issym() or entry.isdev()):
            while size > 0:
                size -= len(read(min(size, _PIECE)))


def _inflated(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a layer, which may be several gzip files or not compressed, in small pieces."""
    data = stream.read(_PIECE)
    if not data.startswith(b"\x1f\x8b"):
        while data:
            yield data
            data = stream.read(_PIECE)
    gzip = zlib.decompressobj(31)
    while data := data or stream.read(_PIECE):
        yield gzip.decompress(data, 4 * _PIECE)
        data = gzip.unconsumed_tail or gzip.unused_data
        if gzip.eof:
            gzip = zlib.decompressobj(31)
