"""Build one deterministic file of the runner and the light parts of kinetic and kinetic-payload."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

import kinetic_payload
import kinetic_runner
from kinetic_payload.files.private import make_folder, read_private, write_private

SIZE_LIMIT: Final = 512 * 1024
"""Maximum bytes of a bundle without bytecode: it must fit into a ConfigMap beside other data."""

_NOTHING: Final[Mapping[str, bytes]] = MappingProxyType({})
_START: Final = "kinetic_runner/bundle/start.py"
_LEFT_OUT: Final = ("kinetic_payload/testing/", "kinetic_runner/bundle/")
"""Folders that no job uses."""
_OLDEST_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MARSHAL: Final = 2 if sys.version_info < (3, 14) else 5
"""The version of marshal's format. Version 2 has neither references nor interned strings.

Later versions mark both, and until Python 3.12 the interned characters depend on what else is in memory.
From Python 3.14 on, code contains slices, which need version 5.
"""
_BUILDING: Final = threading.Lock()


def build_bundle(extra: Mapping[str, bytes] = _NOTHING, *, bytecode: bool = True) -> bytes:
    """Return the runner as a zip application: `python3 -u FILE --store … --job …`.

    It needs only a Python interpreter with `cloudpickle`. The same sources give the same bytes. *extra*
    holds further files by their name in the archive. Modules below `light/` can be imported unless a
    module of the same name is installed.

    With *bytecode*, the file also holds the bytecode of this minor version of Python. On a machine with
    the same version, the runner then starts about 0.2 s earlier. Without bytecode, the file has a third
    of the size and fits into a ConfigMap.

    Raises:
        SyntaxError: A module is not valid in this version of Python.
        ValueError: A bundle without bytecode is larger than `SIZE_LIMIT`.
    """
    import zipfile  # Only the first job needs it, and all that it imports.

    sources = {name: Path(path).read_bytes() for name, path in _sources()}
    used = {name: data for name, data in sources.items() if not name.startswith(_LEFT_OUT)}
    files = {**used, "__main__.py": sources[_START], **extra}
    for name, source in list(files.items()):
        if bytecode and name.endswith(".py"):
            files[f"{name}c"] = _bytecode(name, source)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _OLDEST_TIME)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            # Bytecode is read at every start, and is not in a bundle with a limit.
            is_bytecode = name.endswith(".pyc")
            entry.compress_type = zipfile.ZIP_STORED if is_bytecode else zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=9)
    data = packed.getvalue()
    if not bytecode and len(data) > SIZE_LIMIT:
        raise ValueError(f"The runner's bundle has {len(data)} bytes; the limit is {SIZE_LIMIT}.")
    return data


@lru_cache(2)
def bundle_digest(data: bytes) -> str:
    """Return the digest that names a bundle."""
    return hashlib.sha256(data).hexdigest()


def bundle_for(
    cache_dir: Path, extra: Mapping[str, bytes] = _NOTHING, *, bytecode: bool = True
) -> Path:
    """Return a file in *cache_dir* that holds `build_bundle(extra, …)`, made on first use.

    Any number of threads and processes may call this. If no source has changed, it only needs one `stat`
    for each source and compiles nothing. The file's name holds the digest of its contents: a file that is
    damaged, or that another user may have written, is replaced.
    """
    # A digest of the sources' paths, sizes and times, and of *extra*; it reads no source.
    form = (sys.implementation.cache_tag, _bytecode("", b""), bytecode)
    key = hashlib.sha256(repr(form).encode())
    for name, source in sorted(_sources()):
        seen = os.stat(source)  # noqa: PTH116 - `pathlib` takes time
        key.update(
            f"{name}\0{source}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ino}\n".encode()
        )
    for name in sorted(extra):
        key.update(f"{name}\0{len(extra[name])}\0".encode() + extra[name])
    prefix = f"remote_runner-{key.hexdigest()[:16]}-"
    with _BUILDING:
        for path in sorted(cache_dir.glob(f"{prefix}*.py")):
            with suppress(OSError):
                if bundle_digest(read_private(path)) == path.stem.removeprefix(prefix):
                    return path
        data = build_bundle(extra, bytecode=bytecode)
        bundle = cache_dir / f"{prefix}{bundle_digest(data)}.py"
        make_folder(cache_dir)
        # A crash of the machine must not leave an empty file under a name that is trusted.
        write_private(bundle, data, durable=True)
    return bundle


def _sources() -> Iterator[tuple[str, str]]:
    for package in (kinetic_payload, kinetic_runner):
        parent = os.path.dirname(package.__path__[0])  # noqa: PTH120 - `rglob` takes five times as long
        for folder, _, files in os.walk(package.__path__[0], onerror=_fail):
            for name in files:
                if name.endswith(".py"):
                    path = f"{folder}/{name}"
                    yield path[len(parent) + 1 :].replace(os.sep, "/"), path


def _fail(error: OSError) -> NoReturn:
    raise error


def _bytecode(name: str, source: bytes) -> bytes:
    for left in reversed(range(10)):
        try:
            code = compile(
                source, f"remote_runner.py/{name}", "exec", dont_inherit=True, optimize=0
            )
            break
        except SystemError:
            # Before Python 3.11.8, parsing in several threads at once can fail (python/cpython#106905).
            if not left:
                raise
    # PEP 552: hash-based, never checked against the source.
    flags = (1).to_bytes(4, "little")
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + digest + marshal.dumps(code, _MARSHAL)
