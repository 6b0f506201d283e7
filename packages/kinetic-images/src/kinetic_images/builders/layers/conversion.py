"""Conversion of wheels to a layer: a stream from zip files to a `tar.gz` file, with bytecode of their modules."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import importlib.util
import io
import marshal
import posixpath
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from kinetic_images.builders.image_layout import LAYER_BIN, LAYER_SITE, WHITEOUT, fits
from kinetic_images.builders.layers.layer_file import LayerBlob, LayerWriter
from kinetic_images.builders.layers.wheel_contents import Wheel

INTERPRETER: Final = b"#!/usr/bin/env python3"
_ENTRY_POINT_GROUPS: Final = ("console_scripts", "gui_scripts")
_ENTRY_POINT: Final = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<attr>[\w.]+)\s*(?:\[[^\]]*\])?")
_PROGRAM_NAME: Final = re.compile(r"[^/\s\0][^/\r\n\0]*")
_LONGEST_FIRST_LINE: Final = 4096

_LAUNCHER: Final = """\
{interpreter}
import re
import sys
from {module} import {imported}
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit({attr}())
"""


RecordRow = tuple[str, str, str]
"""A path relative to the folder of modules, its hash (`sha256=…`) and its size; empty if unknown."""


VERSION: Final = 3
"""The version of the conversion. Change it with everything that changes the bytes of a layer."""

_UNCHECKED: Final = (0b01).to_bytes(4, "little")
"""The flags of a file that is used without comparing it with its source (PEP 552)."""

_LARGEST_SOURCE: Final = 1 << 20
"""The size in bytes above which a module is not compiled: the compiler takes some 150 times as much memory."""
_INSTALLER: Final = b"kinetic\n"
_PYTHON_PROGRAM: Final = re.compile(rf"{LAYER_BIN}/pythonw?[0-9.]*")


def write_layer(wheels: Sequence[Path], stream: BinaryIO, *, bytecode: bool) -> LayerBlob:
    """Write the layer of *wheels* into *stream*; if several have one path, the last one's file counts.

    The memory does not depend on the size of the wheels. With *bytecode*, modules are compiled by this
    interpreter. The address of a wheel is not recorded (`direct_url.json`): it is no ingredient of an image, and may name a
    folder of this machine.

    Raises:
        InvalidWheelError: A wheel cannot be installed; the message names it and the reason.
    """
    with ExitStack() as opened:
        installations = []
        for path in wheels:
            wheel = Wheel(path)
            opened.callback(wheel.close)
            installations.append(_Installation(wheel, bytecode=bytecode))
        owners = {file: number for number, each in enumerate(installations) for file in each.paths}
        for file, number in owners.items():
            for folder in map(str, PurePosixPath(file).parents):
                if folder in owners:
                    other = installations[owners[folder]].file
                    raise installations[number].error(
                        f"it has a folder at {folder!r}, where {other} has a file"
                    )
        writer = LayerWriter(stream)
        for number, installation in enumerate(installations):
            installation.write(
                writer, {path for path in installation.paths if owners[path] != number}
            )
        return writer.finish()


class _Installation:
    """One wheel, and what an installer makes of it."""

    def __init__(self, wheel: Wheel, *, bytecode: bool) -> None:
        self._wheel = wheel
        self.file, self.error = wheel.file, wheel.error
        self._bytecode = bytecode
        self._recorded = wheel.record()
        try:
            self._programs = scripts_of(wheel.text("entry_points.txt") or "")
        except ValueError as error:
            raise wheel.error(str(error)) from error
        # An entry point takes the place of a script of the same name, as in pip.
        programs = {f"{LAYER_BIN}/{name}" for name in self._programs}
        entries = [entry for entry in wheel.entries if entry.path not in programs]
        cached = {cached_path(entry.path) for entry in entries if entry.is_source}
        # Bytecode from a wheel is out of date: it names another time of its source.
        self._entries = sorted(
            (entry for entry in entries if entry.path not in cached), key=lambda entry: entry.path
        )
        info = f"{LAYER_SITE}/{wheel.dist_info}"
        self._installer, self._record = f"{info}/INSTALLER", f"{info}/RECORD"
        self.paths = [
            *(entry.path for entry in self._entries),
            *(cached_path(entry.path) for entry in self._entries if entry.is_source),
            *programs,
        ]
        """The paths of the files, those of bytecode included even if a module does not compile."""
        if any(_PYTHON_PROGRAM.fullmatch(path) for path in self.paths):
            # It comes first on PATH, and its own first line would start it again.
            raise wheel.error("it has a program with the name of the interpreter")

    def write(self, writer: LayerWriter, skipped: set[str]) -> None:
        """Write the files, except to the paths *skipped*, at which another wheel's files are placed."""

        def add(path: str, size: int, content: Iterator[bytes], *, executable: bool) -> None:
            if path in skipped:
                deque(content, maxlen=0)
                return
            try:
                writer.add(path, size, content, executable=executable)
            except ValueError as error:
                raise self.error(str(error)) from error

        rows: list[RecordRow] = []
        for entry in self._entries:
            path, size, content = entry.path, entry.info.file_size, self._wheel.content(entry.info)
            recorded = self._recorded.get(entry.info.filename, ("", ""))
            if entry.is_script:
                # It may be a large program. It gets the interpreter of the image.
                beginning, sha = next(content, b""), hashlib.sha256()
                changed = portable(beginning)
                size += len(changed) - len(beginning)
                script = _hashed(chain((changed,), content), sha)
                add(path, size, script, executable=entry.executable)
                recorded = (recorded_hash(sha.digest()), str(size))
            elif entry.is_source and size <= _LARGEST_SOURCE:
                source = b"".join(content)
                add(path, len(source), iter((source,)), executable=entry.executable)
                cached = cached_path(path)
                possible = self._bytecode and fits(cached)
                made = compiled(source, f"/{path}") if possible else None
                if made is not None:
                    add(cached, len(made), iter((made,)), executable=False)
                    # As in pip: bytecode may be compiled again, so it has no hash.
                    rows.append((recorded_path(cached), "", ""))
            else:
                add(path, size, content, executable=entry.executable)
            rows.append((recorded_path(path), *recorded))
        programs = [(f"{LAYER_BIN}/{name}", data) for name, data in sorted(self._programs.items())]
        for path, data in (*programs, (self._installer, _INSTALLER)):
            add(path, len(data), iter((data,)), executable=path != self._installer)
            digest = recorded_hash(hashlib.sha256(data).digest())
            rows.append((recorded_path(path), digest, str(len(data))))
        rows.append((recorded_path(self._record), "", ""))
        record = rendered(rows)
        add(self._record, len(record), iter((record,)), executable=False)


def _hashed(pieces: Iterable[bytes], sha: hashlib._Hash) -> Iterator[bytes]:
    """Yield *pieces*, and add them to *sha*."""
    for data in pieces:
        sha.update(data)
        yield data


def recorded_path(path: str) -> str:
    """Return *path*, of the image, as RECORD names it."""
    return posixpath.relpath(path, LAYER_SITE)


def recorded_hash(digest: bytes) -> str:
    """Return a SHA-256 as RECORD contains it."""
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def rendered(rows: Iterable[RecordRow]) -> bytes:
    """Return the file, with sorted rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(sorted(rows))
    return text.getvalue().encode("utf-8", "surrogateescape")


def scripts_of(entry_points: str) -> dict[str, bytes]:
    """Return the programs that the file `entry_points.txt` declares: name → content.

    Raises:
        ValueError: The file is malformed; the message says how.
    """
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(entry_points)
    except configparser.Error as error:
        raise ValueError(f"entry_points.txt is malformed: {error.message[:300]}") from error
    found = {}
    for group in _ENTRY_POINT_GROUPS:
        for name, value in parser.items(group) if parser.has_section(group) else ():
            valid = _PROGRAM_NAME.fullmatch(name) and fits(name)
            if not valid or name in (".", "..") or name.startswith(WHITEOUT):
                raise ValueError(f"the entry point {name!r} is not a valid name of a program")
            target = _ENTRY_POINT.fullmatch(value.strip())
            parts = f"{target['module']}.{target['attr']}".split(".") if target else [""]
            if target is None or not all(part.isidentifier() for part in parts):
                raise ValueError(
                    f"the entry point {name!r} does not name a function: {value[:300]!r}"
                )
            found[name] = _LAUNCHER.format(
                interpreter=INTERPRETER.decode(),
                module=target["module"],
                imported=target["attr"].partition(".")[0],
                attr=target["attr"],
            ).encode()
    return found


def portable(beginning: bytes) -> bytes:
    """Return the *beginning* of a script with our interpreter if its first line is `#!python`.

    Wheels mark in this way the scripts in which an installer writes the interpreter's path.
    """
    line, end, rest = beginning.partition(b"\n")
    if not line.startswith(b"#!python") or len(line) > _LONGEST_FIRST_LINE or not (end or not rest):
        return beginning
    return INTERPRETER + end + rest


def bytecode_kind(python: str) -> str | None:
    """Return the kind of bytecode for *python* (`3.11`), if this interpreter can make it."""
    if python != f"{sys.version_info.major}.{sys.version_info.minor}":
        return None
    if sys.implementation.name != "cpython" or sys.implementation.cache_tag is None:
        return None
    return f"{sys.implementation.cache_tag}-{importlib.util.MAGIC_NUMBER.hex()}"


def cached_path(path: str) -> str:
    """Return the path at which Python looks for the bytecode of the module at *path*."""
    folder, _, name = path.rpartition("/")
    cached = f"__pycache__/{name.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
    return f"{folder}/{cached}" if folder else cached


def compiled(source: bytes, path: str) -> bytes | None:
    """Return the bytecode file of *source*, the module at the absolute *path*.

    None: it does not compile, as is normal for templates and for modules of other Pythons.
    """
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
        # The code has a name here, as in py_compile: a flag in the bytes depends on its references.
        data = marshal.dumps(code)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError, SystemError):
        return None
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + digest + data
