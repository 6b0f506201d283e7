"""Uploaded `Data`: which objects it consists of, and the marker that vouches for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import (
    WIRE_VERSION,
    data_files_prefix,
    data_large,
    data_pack,
    data_prefix,
)
from kinetic_payload.limits import checked_number

if TYPE_CHECKING:
    from kinetic_payload.digests import TreeEntry

MAX_PACK: Final = 256 << 20
"""Bytes of content that a reader takes from one pack; no writer puts nearly as many into one."""
_ENTRY_COST: Final = 512
"""Bytes that a file of a pack counts beside its contents, so that packs of tiny files end, too."""
_PACKED_NAME: Final = re.compile(r"packs/[0-9]{5,9}\.zip|large/[0-9]{5,9}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Where files are parted, in bytes. The defaults belong to the wire: all clients part alike."""

    large: int = 32 << 20
    """Files of at least this size are objects of their own."""
    pack: int = 64 << 20
    """When a pack is full."""
    in_memory: int = 1 << 20
    """Up to this size a file that is an object of its own is read as a whole before it is sent."""


SIZES: Final = Sizes()


@dataclass(frozen=True, slots=True)
class Part:
    """One object of an uploaded tree: an archive of several entries, or one file."""

    name: str
    entries: tuple[TreeEntry, ...]
    is_pack: bool

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


def packed_parts(
    digest: str, entries: Sequence[TreeEntry], sizes: Sizes = SIZES
) -> tuple[Part, ...]:
    """Part a tree, sorted by path, into what travels packed. The same tree gives the same parts."""
    packs: list[list[TreeEntry]] = []
    large = []
    room = 0
    for entry in entries:
        if entry.kind == "file" and entry.size >= sizes.large:
            large.append(entry)
            continue
        if room <= 0:
            packs.append([])
            room = sizes.pack
        packs[-1].append(entry)
        room -= entry.size + _ENTRY_COST
    return (
        *(Part(data_large(digest, n), (entry,), False) for n, entry in enumerate(large)),
        *(Part(data_pack(digest, n), tuple(pack), True) for n, pack in enumerate(packs)),
    )


def mounted_parts(digest: str, entries: Iterable[TreeEntry]) -> tuple[Part, ...]:
    """Return the files of a tree that is to be mounted, each as an object by its path."""
    prefix = data_files_prefix(digest)
    return tuple(
        Part(prefix + entry.path, (entry,), False) for entry in entries if entry.kind == "file"
    )


def unmountable(path: str, room: int) -> str | None:
    """Say why an object whose name ends in *path* cannot be mounted as that file, or None.

    Args:
        room: How many bytes the name has left for it.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    # The last two stand in the stores' own spelling of the first two.
    if not {"\n", "\r", "\x0b", "\x0e"}.isdisjoint(path):
        return "its name has a line break, or another character that names of objects cannot have"
    if size > room:
        return f"its path has {size} bytes, and {room} are left for it in the name of an object"
    return None


@dataclass(frozen=True, slots=True)
class Listed:
    """One object that a marker vouches for."""

    name: str
    """Below the prefix of the data."""
    size: int
    """Of the object, in bytes."""
    path: str = ""
    """Of a large file that travels by itself: where it belongs."""
    mode: int = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Vouches for an uploaded `Data` in one of its forms: `data-markers/{digest}[.files]`."""

    digest: str
    objects: tuple[Listed, ...]
    mounted: bool
    written_at: float
    """By the store's clock; what it lists was as young then, or younger than needs renewing."""
    executables: tuple[str, ...] = ()
    """Paths of the executable files of a mounted one, whose objects have no modes."""

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each object, by its whole name."""
        prefix = data_prefix(self.digest)
        return {prefix + one.name: one.size for one in self.objects}


def encode_marker(marker: Marker) -> bytes:
    """Return *marker* as JSON."""
    objects = []
    for one in marker.objects:
        listed: dict[str, Any] = {"name": one.name, "size": one.size}
        if one.digest:
            listed |= {"path": one.path, "mode": one.mode, "digest": one.digest}
        objects.append(listed)
    written = {
        "version": WIRE_VERSION,
        "digest": marker.digest,
        "form": "files" if marker.mounted else "packed",
        "written_at": marker.written_at,
        "objects": objects,
    }
    if marker.mounted:
        written["executables"] = list(marker.executables)
    return json.dumps(written, sort_keys=True, separators=(",", ":")).encode()


def parse_marker(data: bytes, *, digest: str, mounted: bool = False) -> Marker:
    """Parse the marker of *digest*, which whoever can write to the store may have written.

    Raises:
        FutureRecordError: A newer Kinetic wrote it.
        RecordError: It is none, or that of something else.
    """
    try:
        written = json.loads(data)
        version = _typed(written["version"], int)
        if version > WIRE_VERSION:
            raise FutureRecordError(
                f"The marker of data {digest[:12]}… was written in format {version}; this Kinetic "
                f"reads up to {WIRE_VERSION}.",
                hint="Upgrade Kinetic here.",
            )
        if (written["digest"], written["form"]) != (digest, "files" if mounted else "packed"):
            raise ValueError("it belongs to other data")
        return Marker(
            digest=digest,
            objects=tuple(_listed(one, mounted) for one in _typed(written["objects"], list)),
            mounted=mounted,
            written_at=float(_number("written_at", written["written_at"], float, int)),
            executables=tuple(_typed(one, str) for one in written.get("executables", ())),
        )
    except RecordError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise RecordError(
            f"The marker of data {digest[:12]}… is not valid: {type(error).__name__}: {error}."
        ) from error


def _listed(one: Any, mounted: bool) -> Listed:
    name, size = _typed(one["name"], str), _number("size", one["size"], int)
    if not (mounted or _PACKED_NAME.fullmatch(name)):
        raise ValueError(f"{name[:80]!r} is no object of it")
    if not name.startswith("large/"):
        return Listed(name, size)
    path, mode, digest = _typed(one["path"], str), _typed(one["mode"], int), one["digest"]
    path.encode("utf-8", "surrogateescape")  # Half a surrogate pair is the name of no file.
    if not 0 <= mode <= 0o777:
        raise ValueError(f"{mode} is no mode")
    if not _DIGEST.fullmatch(_typed(digest, str)):
        raise ValueError(f"{digest!r:.80} is no digest")
    return Listed(name, size, path, mode, digest)


def _number(field: str, value: Any, *kinds: type) -> Any:
    checked_number(field, _typed(value, *kinds))
    return value


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"{value!r:.50} is not of the type {kinds[0].__name__}")
    return value
