"""Modules that the files of a snapshot import."""

from __future__ import annotations

import ast
import warnings

from kinetic_payload.project.snapshot import Snapshot


def file_that_imports(snapshot: Snapshot, module: str) -> str | None:
    """Return the first Python file of *snapshot*, relative to its root, that imports the top-level *module*.

    Imports inside functions count. Files that cannot be read or parsed count as importing nothing.
    """
    name = module.encode()
    for entry in snapshot.entries:
        if entry.kind != "file" or not entry.path.endswith(".py"):
            continue
        try:
            source = (snapshot.root / entry.path).read_bytes()
        except OSError:
            continue
        # Few files contain the name, so few are parsed.
        if name in source and _imports(source, module):
            return entry.path
    return None


def _imports(source: bytes, module: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        if any(name.partition(".")[0] == module for name in names):
            return True
    return False
