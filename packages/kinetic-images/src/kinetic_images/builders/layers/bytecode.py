"""Bytecode of modules, compiled by this interpreter for the path that they have in the image."""

from __future__ import annotations

import importlib.util
import marshal
import sys
from typing import Final

_UNCHECKED: Final = (0b01).to_bytes(4, "little")
"""The flags of a file that is used without comparing it with its source (PEP 552)."""

LARGEST_SOURCE: Final = 1 << 20
"""The size in bytes above which a module is not compiled: the compiler takes some 150 times as much memory."""


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
