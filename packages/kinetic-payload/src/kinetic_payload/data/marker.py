"""Marker of an uploaded `Data`: the list of its objects, written after all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import WIRE_VERSION, data_files_prefix, data_large, data_pack
from kinetic_payload.limits import checked_number

if TYPE_CHECKING:
    from kinetic_payload.digests import TreeEntry

MAX_PACK: Final = 256 << 20
"""The most bytes of content that a reader accepts in one pack; writers put far fewer into one."""
_ENTRY_COST: Final = 512
"""Bytes added to the size of each file in a pack, so that packs of tiny files are limited, too."""
_PACKED_NAME: Final = re.compile(r"packs/[0-9]{5,9}\.zip|large/[0-9]{5,9}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes, in bytes, that split a tree into objects. The defaults are the same in all clients."""

    large: int = 32 << 20
    """Files of at least this size are objects of their own."""
    pack: int = 64 << 20
    """The size at which a pack is full."""
    small: int = 1 << 20
    """Files up to this size, if they are objects of their own, are sent many at once."""


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
    """Split a tree, sorted by path, into packs and large files. The same tree gives the same parts."""
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


@dataclass(frozen=True, slots=True)
class Listed:
    """One object that a marker lists."""

    name: str
    """Below the prefix of the data."""
    size: int
    """Of the object, in bytes."""
    path: str = ""
    """The path of a large file, which is an object of its own."""
    mode: int = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The object `data-markers/{digest}[.files]`. It states that an uploaded `Data` is complete in one form."""

    digest: str
    objects: tuple[Listed, ...]
    mounted: bool
    written_at: float
    """By the store's clock. No object that it lists was old enough to be renewed then."""
    executables: tuple[str, ...] = ()
    """Paths of executable files of the mounted form, whose objects have no modes."""


def encode_marker(marker: Marker) -> bytes:
    """Return *marker* as JSON."""
    objects = []
    for listed in marker.objects:
        fields: dict[str, Any] = {"name": listed.name, "size": listed.size}
        if listed.digest:
            fields |= {"path": listed.path, "mode": listed.mode, "digest": listed.digest}
        objects.append(fields)
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
    """Parse the marker of *digest*. Any writer of the store may have written it, so nothing is trusted.

    Raises:
        FutureRecordError: A newer Kinetic wrote it.
        RecordError: It is not a marker, or is the marker of other data.
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
            objects=tuple(_listed(item, mounted) for item in _typed(written["objects"], list)),
            mounted=mounted,
            written_at=float(_number("written_at", written["written_at"], float, int)),
            executables=tuple(_typed(path, str) for path in written.get("executables", ())),
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


def _listed(fields: Any, mounted: bool) -> Listed:
    name, size = _typed(fields["name"], str), _number("size", fields["size"], int)
    if not (mounted or _PACKED_NAME.fullmatch(name)):
        raise ValueError(f"{name[:80]!r} is not the name of an object of packed data")
    if not name.startswith("large/"):
        return Listed(name, size)
    path, mode, digest = _typed(fields["path"], str), _typed(fields["mode"], int), fields["digest"]
    path.encode("utf-8", "surrogateescape")  # A file name cannot contain half a surrogate pair.
    if not 0 <= mode <= 0o777:
        raise ValueError(f"{mode} is not a mode")
    if not _DIGEST.fullmatch(_typed(digest, str)):
        raise ValueError(f"{digest!r:.80} is not a digest")
    return Listed(name, size, path, mode, digest)


def _number(field: str, value: Any, *kinds: type) -> Any:
    checked_number(field, _typed(value, *kinds))
    return value


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"{value!r:.50} is not of the type {kinds[0].__name__}")
    return value
