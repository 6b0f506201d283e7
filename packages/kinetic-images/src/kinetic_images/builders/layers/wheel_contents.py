"""Contents of a wheel: which of its files is placed where, by the specification of wheels.

https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import csv
import errno
import io
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.utils import canonicalize_name

from kinetic_images.builders.image_layout import LAYER_BIN, LAYER_PREFIX, LAYER_SITE, WHITEOUT, fits
from kinetic_images.errors import InvalidWheelError

_CHUNK: Final = 1 << 20
_LARGEST_RECORD: Final = 16 << 20
_LARGEST_METADATA: Final = 256 << 10
"""The most bytes of other metadata that are read."""
_VERSION: Final = re.compile(r"1\.\d+")
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\]")
_OF_INSTALLERS: Final = frozenset(
    {"INSTALLER", "RECORD", "RECORD.jws", "RECORD.p7s", "REQUESTED", "direct_url.json"}
)
"""Metadata that an installer writes itself."""


@dataclass(frozen=True, kw_only=True)
class WheelEntry:
    """One file of a wheel."""

    info: zipfile.ZipInfo
    path: str
    """The path in the image, without a slash in front."""
    executable: bool
    is_script: bool

    @property
    def is_source(self) -> bool:
        """Whether it is a module in Python."""
        return self.path.endswith(".py") and self.path.startswith(f"{LAYER_SITE}/")


class Wheel:
    """An open wheel whose paths were checked.

    Raises:
        InvalidWheelError: It is damaged, not a wheel, of an unknown version, or has an unsafe path.
    """

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.name = path.name.partition("-")[0]
        self._stream = path.open("rb")
        try:
            try:
                self._archive = zipfile.ZipFile(self._stream)
            except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
                raise self.error(f"it is not a zip file ({error})") from error
            listed = self._archive.infolist()
            infos = [each for each in listed if each.file_size or not each.filename.endswith("/")]
            if sum(info.compress_size for info in infos) > path.stat().st_size:
                raise self.error("its files overlap")
            tops = {info.filename.partition("/")[0] for info in infos if "/" in info.filename}
            found = sorted(name for name in tops if name.endswith(".dist-info"))
            if len(found) != 1:
                raise self.error(f"it has {len(found)} folders .dist-info instead of one")
            self.dist_info = found[0]
            name = self.dist_info.partition("-")[0]
            if canonicalize_name(name) != canonicalize_name(self.name):
                raise self.error(f"its metadata is that of another package, {self.dist_info!r}")
            text = self.text("WHEEL")
            if text is None or f"{self.dist_info}/METADATA" not in self._archive.namelist():
                raise self.error("it has no WHEEL or no METADATA")
            version = str(HeaderParser().parsestr(text).get("Wheel-Version", "")).strip()
            if not _VERSION.fullmatch(version):
                raise self.error(f"its Wheel-Version is {version!r}; only 1.x is supported")
            self.entries = tuple(self._entries(infos))
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def error(self, problem: str) -> InvalidWheelError:
        """Return the error that names this wheel."""
        return InvalidWheelError(
            f"The wheel {self.file} cannot be installed: {problem}.",
            hint="Use another version of the package, or report this to its authors. If a disk has damaged the "
            "file, remove the folder cache/downloads of Kinetic's home.",
        )

    def text(self, name: str, *, most: int = _LARGEST_METADATA) -> str | None:
        """Return the text of the file *name* in the metadata, of up to *most* bytes; None: there is none."""
        try:
            info = self._archive.getinfo(f"{self.dist_info}/{name}")
        except KeyError:
            return None
        if info.file_size > most:
            raise self.error(f"{info.filename} has {info.file_size} bytes")
        try:
            return b"".join(self.content(info)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.error(f"{name} is not UTF-8") from error

    def content(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the bytes of a file, verified by its checksum.

        Raises:
            InvalidWheelError: It is damaged, encrypted, or compressed in an unknown way.
        """
        try:
            left = info.file_size
            with self._archive.open(info) as entry:
                while data := entry.read(_CHUNK):
                    left -= len(data)
                    yield data
            if left:
                raise zipfile.BadZipFile("it ends early")
        except MemoryError:
            raise
        except Exception as error:  # Those of zipfile, and of the libraries that it uses.
            # bz2 raises OSError without a number for damaged data, and a wrong offset cannot be sought.
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise self.error(f"{info.filename!r} cannot be read ({error})") from error

    def record(self) -> dict[str, tuple[str, str]]:
        """Return what the wheel's own list says of its files: path in the wheel → hash, size.

        Raises:
            InvalidWheelError: There is none, or it is malformed.
        """
        text = self.text("RECORD", most=_LARGEST_RECORD)
        if text is None:
            raise self.error("it has no RECORD")
        files = {entry.info.filename for entry in self.entries}
        # The list may be much longer than that of the files.
        rows = filter(None, csv.reader(io.StringIO(text, newline="")))
        try:
            return {path: (digest, size) for path, digest, size in rows if path in files}
        except (csv.Error, ValueError) as error:
            raise self.error(f"its RECORD is malformed ({error})") from error

    def _entries(self, infos: Iterable[zipfile.ZipInfo]) -> Iterator[WheelEntry]:
        placed: dict[str, WheelEntry] = {}
        for info in sorted(infos, key=lambda info: _is_data(info.filename)):
            problem = _problem(info)
            if problem is not None:
                raise self.error(f"the path {info.filename!r} is unsafe: {problem}")
            path, is_script = self._place(info.filename)
            if path is None:
                continue
            if not fits(path):
                raise self.error(f"the path {path[:300]!r}… is longer than Linux allows")
            mode = info.external_attr >> 16
            # Of several files for one path, the last one counts, and those of `.data` come last: as in pip and uv.
            placed[path] = WheelEntry(
                info=info,
                path=path,
                executable=is_script or bool(mode & 0o111),
                is_script=is_script,
            )
        folders = {str(folder) for path in placed for folder in PurePosixPath(path).parents}
        if both := folders & set(placed):
            raise self.error(f"{min(both)!r} is a file and a folder")
        yield from placed.values()

    def _place(self, name: str) -> tuple[str | None, bool]:
        """Return where the file *name* is placed, and whether it is a script. None: it is left out."""
        top, _, rest = name.partition("/")
        if top == self.dist_info and rest in _OF_INSTALLERS:
            return None, False
        if not _is_data(name):
            return f"{LAYER_SITE}/{name}", False
        scheme, _, inner = rest.partition("/")
        root = {
            "purelib": LAYER_SITE,
            "platlib": LAYER_SITE,
            "scripts": LAYER_BIN,
            "data": LAYER_PREFIX,
            "headers": f"{LAYER_PREFIX}/include/{self.name}",
        }.get(scheme)
        if root is None or not inner:
            raise self.error(f"{name!r} is of an unknown kind, {scheme!r}")
        return f"{root}/{inner}", scheme == "scripts"


def _is_data(name: str) -> bool:
    """Return whether *name* is in the folder of files that are placed by their kind."""
    top, _, rest = name.partition("/")
    return top.endswith(".data") and bool(rest)


def _problem(info: zipfile.ZipInfo) -> str | None:
    """Return why the path or the type of the file is not safe, or None."""
    # `filename` ends at the first NUL; this is what the archive contains.
    name = info.orig_filename
    parts = name.split("/")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if name.startswith("/"):
        return "it is absolute"
    if ".." in parts:
        return "it contains '..'"
    if not {"", "."}.isdisjoint(parts):
        return "it contains '.' or an empty part"
    if _UNSAFE.search(name):
        return "it contains a backslash or a control character"
    if any(part.startswith(WHITEOUT) for part in parts):
        return "it would remove files of the base image"
    if info.create_system == 3 and kind not in (0, stat.S_IFREG):
        return "it is a link or a device"
    return None
