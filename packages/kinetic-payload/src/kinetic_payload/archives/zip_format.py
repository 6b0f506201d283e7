"""The zip file format, as far as archives need it: members to bytes and back.

In addition to the usual fields, the central directory has each member's digest in an extra field. So the
directory alone gives the digest of the tree, and no path in the archive is reserved for digests.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from kinetic_payload.digests import EntryKind, encoded
from kinetic_payload.errors import IntegrityError

STORED: Final = 0
DEFLATED: Final = 8

_UTF8: Final = 0x0800
_ENCRYPTED: Final = 0x0001
_LIMIT32: Final = 0xFFFFFFFF
_LIMIT16: Final = 0xFFFF
_WIDE_SIZE: Final = 0xF0000000
"""From this size on, sizes take eight bytes. Below it, four suffice even if deflating adds bytes."""
_DIGEST_FIELD: Final = 0x4E4B
_ZIP64_FIELD: Final = 0x0001
_MADE_BY_UNIX: Final = 3 << 8 | 45
_DOS_TIME: Final = 0
_DOS_DATE: Final = 1 << 5 | 1  # 1 January 1980: times are not used, files are identified by digests

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64: Final = struct.Struct("<4sLQL")

_TYPES: Final[dict[EntryKind, int]] = {
    "file": stat.S_IFREG,
    "dir": stat.S_IFDIR,
    "link": stat.S_IFLNK,
}


@dataclass(slots=True)
class Member:
    """One entry of a zip file."""

    path: str
    """Without the trailing slash of folders."""
    kind: EntryKind
    mode: int
    method: int = STORED
    crc: int = 0
    compressed: int = 0
    """Bytes in the archive."""
    size: int = 0
    digest: str = ""
    """As `file_digest` returns it."""
    offset: int = 0


def _name_of(member: Member) -> tuple[bytes, int]:
    """Return the name's bytes, and the flag that tells whether they are UTF-8."""
    name = encoded(member.path) + (b"/" if member.kind == "dir" else b"")
    if member.path.isascii():
        return name, 0
    try:
        name.decode()
    except UnicodeDecodeError:
        return name, 0
    return name, _UTF8


def local_header(member: Member) -> bytes:
    """Return the header before the member's data. Its length depends on nothing but the name and the size."""
    name, flags = _name_of(member)
    extra = b""
    compressed, size = member.compressed, member.size
    if size >= _WIDE_SIZE:
        extra = struct.pack("<2H2Q", _ZIP64_FIELD, 16, size, compressed)
        compressed = size = _LIMIT32
    return (
        _LOCAL.pack(
            b"PK\3\4",
            45 if extra else 20,
            flags,
            member.method,
            _DOS_TIME,
            _DOS_DATE,
            member.crc,
            compressed,
            size,
            len(name),
            len(extra),
        )
        + name
        + extra
    )


def central_header(member: Member) -> bytes:
    """Return the member's record in the central directory."""
    name, flags = _name_of(member)
    wide = [value for value in (member.size, member.compressed, member.offset) if value >= _LIMIT32]
    extra = b""
    if wide:
        extra += struct.pack(f"<2H{len(wide)}Q", _ZIP64_FIELD, 8 * len(wide), *wide)
    if member.digest:
        extra += struct.pack("<2H", _DIGEST_FIELD, 32) + bytes.fromhex(member.digest)
    folder_bit = 0x10 if member.kind == "dir" else 0
    return (
        _CENTRAL.pack(
            b"PK\1\2",
            _MADE_BY_UNIX,
            45 if wide or member.size >= _WIDE_SIZE else 20,
            flags,
            member.method,
            _DOS_TIME,
            _DOS_DATE,
            member.crc,
            min(member.compressed, _LIMIT32),
            min(member.size, _LIMIT32),
            len(name),
            len(extra),
            0,
            0,
            0,
            (_TYPES[member.kind] | member.mode) << 16 | folder_bit,
            min(member.offset, _LIMIT32),
        )
        + name
        + extra
    )


def end_records(count: int, start: int, length: int) -> bytes:
    """Return the end records of a zip file whose central directory begins at *start*."""
    records = b""
    if count >= _LIMIT16 or start >= _LIMIT32 or length >= _LIMIT32:
        records += _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
        records += _LOCATOR64.pack(b"PK\6\7", 0, start + length, 1)
    count, start, length = min(count, _LIMIT16), min(start, _LIMIT32), min(length, _LIMIT32)
    return records + _END.pack(b"PK\5\6", 0, 0, count, count, length, start, 0)


def _end_of_directory(source: BinaryIO) -> tuple[int, int, int]:
    """Return count, start and length of the central directory."""
    size = source.seek(0, os.SEEK_END)
    tail_start = max(0, size - _END.size - _LOCATOR64.size)
    source.seek(tail_start)
    tail = source.read()
    at = len(tail) - _END.size  # Kinetic's archives have no comment.
    if tail[at : at + 4] != b"PK\5\6" or at < 0:
        raise IntegrityError("The archive has no end record: it is cut off, or is not a zip file.")
    _, _, _, _, count, length, start, _ = _END.unpack_from(tail, at)
    locator = at - _LOCATOR64.size
    # The end of the directory may look like a locator; a locator is needed only if a number does not fit.
    wide = count == _LIMIT16 or length == _LIMIT32 or start == _LIMIT32
    if wide and locator >= 0 and tail[locator : locator + 4] == b"PK\6\7":
        _, _, where, _ = _LOCATOR64.unpack_from(tail, locator)
        source.seek(where)
        record = source.read(_END64.size)
        if len(record) < _END64.size or record[:4] != b"PK\6\6":
            raise IntegrityError("The archive's end record is damaged.")
        *_, count, length, start = _END64.unpack(record)
    if start + length > size:
        raise IntegrityError("The archive's directory lies outside of it: it is cut off.")
    return count, start, length


def read_directory(source: BinaryIO, *, max_entries: int) -> Iterator[Member]:
    """Yield the members of the zip file *source*, as its central directory lists them.

    Raises:
        IntegrityError: The directory is damaged, or lists more than *max_entries*.
    """
    count, start, length = _end_of_directory(source)
    if count > max_entries:
        raise IntegrityError(f"The archive lists {count} entries; {max_entries} are allowed.")
    source.seek(start)
    directory = source.read(length)
    at = 0
    for _ in range(count):
        if directory[at : at + 4] != b"PK\1\2" or at + _CENTRAL.size > length:
            raise IntegrityError("The archive's directory is damaged.")
        fields = _CENTRAL.unpack_from(directory, at)
        name_at = at + _CENTRAL.size
        extra_at = name_at + fields[10]
        at = extra_at + fields[11] + fields[12]
        if at > length:
            raise IntegrityError("The archive's directory is damaged.")
        yield _member(fields, directory[name_at:extra_at], directory[extra_at : at - fields[12]])


def _member(fields: tuple[int, ...], name: bytes, extra: bytes) -> Member:
    _, _, _, flags, method, _, _, crc, compressed, size, *_, attributes, offset = fields
    # Decode the bytes of the name the same everywhere: os.fsdecode would depend on the locale.
    path = name.decode("utf-8", "surrogateescape")
    mode = attributes >> 16
    kind: EntryKind = "file"
    if stat.S_ISLNK(mode):
        kind = "link"
    elif path.endswith("/"):
        kind = "dir"
    elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise IntegrityError(f"The archive's entry {path!r} is neither file, folder nor link.")
    if flags & _ENCRYPTED or method not in (STORED, DEFLATED):
        raise IntegrityError(
            f"The archive's entry {path!r} is encrypted or compressed by a method that is not supported."
        )
    member = Member(
        path=path[:-1] if kind == "dir" else path,
        kind=kind,
        mode=mode & 0o777,
        method=method,
        crc=crc,
        compressed=compressed,
        size=size,
        offset=offset,
    )
    _read_extra(member, extra)
    return member


def _read_extra(member: Member, extra: bytes) -> None:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        body = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if kind == _DIGEST_FIELD and len(body) == 32:
            member.digest = body.hex()
        elif kind == _ZIP64_FIELD:
            wide = iter(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
            for name in ("size", "compressed", "offset"):
                if getattr(member, name) == _LIMIT32:
                    setattr(member, name, next(wide, _LIMIT32))


def data_offset(source: BinaryIO, member: Member) -> int:
    """Return where the member's data begins."""
    source.seek(member.offset)
    header = source.read(_LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != b"PK\3\4":
        raise IntegrityError(f"The archive is damaged at its entry {member.path!r}.")
    name_length, extra_length = struct.unpack_from("<2H", header, 26)
    return int(member.offset + _LOCAL.size + name_length + extra_length)
