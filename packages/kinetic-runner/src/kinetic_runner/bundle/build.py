"""Build one deterministic file of the runner and the light parts of kinetic and kinetic-payload."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import marshal
import sys
import threading
import tokenize
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Final

import kinetic_payload
import kinetic_runner
from kinetic_payload.files.private import make_folder, read_private, write_private

SIZE_LIMIT: Final = 512 * 1024
"""Maximum bytes of a bundle without bytecode: it must fit into a ConfigMap beside other data."""

_NOTHING: Final[Mapping[str, bytes]] = MappingProxyType({})
_START: Final = "kinetic_runner/bundle/start.py"
_LEFT_OUT: Final = (
    "kinetic_payload.archives.write",
    "kinetic_payload.calls.by_reference",
    "kinetic_payload.calls.dump",
    "kinetic_payload.calls.module_globals.dump",
    "kinetic_payload.calls.module_globals.initial_values",
    "kinetic_payload.calls.pickler",
    "kinetic_payload.data.upload",
    "kinetic_payload.project.hashing",
    "kinetic_payload.project.ignore",
    "kinetic_payload.project.ignore_files",
    "kinetic_payload.project.membership",
    "kinetic_payload.project.roots",
    "kinetic_payload.project.snapshot",
    "kinetic_payload.project.stat_cache",
    "kinetic_payload.project.tree",
    "kinetic_payload.project.wildmatch",
    "kinetic_payload.records.decode",
    "kinetic_payload.stores.folder.marking",
    "kinetic_payload.testing",
    "kinetic_runner.bundle",
)
"""Modules and packages that only the client uses: a bundle has to stay small."""
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
    sources = {name: path.read_bytes() for name, path in _sources() if not _is_left_out(name)}
    start = dict(_sources())[_START]
    files = {**sources, "__main__.py": start.read_bytes(), **extra}
    for name, source in list(files.items()):
        if name.endswith(".py"):
            files[name] = slim(source)
            if bytecode:
                files[f"{name}c"] = _bytecode(name, files[name])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            archive.writestr(_entry(name), files[name], compresslevel=9)
    data = packed.getvalue()
    if not bytecode and len(data) > SIZE_LIMIT:
        raise ValueError(f"The runner's bundle has {len(data)} bytes; the limit is {SIZE_LIMIT}.")
    return data


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
    prefix = f"remote_runner-{_key(extra, bytecode=bytecode)}-"
    with _BUILDING:
        for path in sorted(cache_dir.glob(f"{prefix}*.py")):
            if _is_whole(path, path.stem.removeprefix(prefix)):
                return path
        data = build_bundle(extra, bytecode=bytecode)
        bundle = cache_dir / f"{prefix}{bundle_digest(data)}.py"
        make_folder(cache_dir)
        # A crash of the machine must not leave an empty file under a name that is trusted.
        write_private(bundle, data, durable=True)
    return bundle


def _is_whole(path: Path, digest: str) -> bool:
    try:
        return bundle_digest(read_private(path)) == digest
    except OSError:
        return False


def _sources() -> Iterator[tuple[str, Path]]:
    for package in (kinetic_payload, kinetic_runner):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            yield f"{package.__name__}/{path.relative_to(folder).as_posix()}", path


def _is_left_out(name: str) -> bool:
    module = name.removesuffix(".py").replace("/", ".")
    return any(f"{module}.".startswith(f"{left_out}.") for left_out in _LEFT_OUT)


def slim(source: bytes) -> bytes:
    """Strip what only readers and type checkers need from the Python *source*; lines keep their numbers.

    Classes keep a docstring of one character: `dataclass` generates a missing docstring, which takes
    longer than reading one.
    """
    text = source.decode()
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    tree = _parse(text)
    for line, start, end in sorted(_annotations(tree, lines), reverse=True):
        if lines[line].isascii():  # Columns count bytes.
            lines[line] = lines[line][:start] + lines[line][end:]
    for statement, instead in _unneeded_statements(tree):
        first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
        before, after = (
            lines[first][: statement.col_offset],
            lines[last - 1][statement.end_col_offset :],
        )
        if not before.strip() and not after.strip():
            lines[first] = f"{before}{instead}".rstrip() + "\n"
            lines[first + 1 : last] = ["\n"] * (last - first - 1)
    return "".join(lines).encode()


def _parse(text: str) -> ast.Module:
    """Return the syntax tree of *text*, even if another thread parses at the same time.

    Before Python 3.11.8, parsing in several threads at once can fail (python/cpython#106905).
    """
    for _ in range(9):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


def _unneeded_statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Iterate over docstrings and `TYPE_CHECKING` blocks, each with its replacement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for number, statement in enumerate(node.body):
                match statement:
                    case ast.Expr(value=ast.Constant(value=str())):
                        if isinstance(node, ast.ClassDef) and number == 0:
                            yield statement, "'.'"
                        elif len(node.body) > 1:
                            yield statement, ""
                    case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
                        yield statement, "pass"


def _annotations(tree: ast.Module, lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Iterate over annotations of functions: line, start column, end column.

    Nothing in the bundle reads them. Annotations of dataclasses are needed, and annotations on several
    lines stay.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and (annotation := node.annotation) is not None:
            if annotation.end_lineno == node.lineno and annotation.end_col_offset is not None:
                start = node.col_offset + len(node.arg)
                yield node.lineno - 1, start, annotation.end_col_offset
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            returns, line = node.returns, node.returns.lineno - 1
            arrow = lines[line].rfind("->", 0, returns.col_offset)
            if returns.end_lineno == returns.lineno and arrow > 0 and returns.end_col_offset:
                yield line, arrow, returns.end_col_offset


def _bytecode(name: str, source: bytes) -> bytes:
    tree = _parse(source.decode())
    _drop_annotations(tree)
    code = compile(tree, f"remote_runner.py/{name}", "exec", dont_inherit=True, optimize=0)
    del tree  # Its references to the constants would change what marshal writes.
    code = _without_columns(code)
    # PEP 552: hash-based, never checked against the source.
    flags = (1).to_bytes(4, "little")
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + digest + marshal.dumps(code, _MARSHAL)


def _drop_annotations(tree: ast.Module) -> None:
    """Remove annotations of functions, which nothing in the bundle reads. Those of dataclasses stay."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None


def _without_columns(code: CodeType) -> CodeType:
    """Return *code* with line numbers but without columns, which are a fifth of all bytecode.

    `python -X no_debug_ranges` omits the columns as well. Tracebacks then have no carets.
    """
    # https://github.com/python/cpython/blob/main/Objects/locations.md
    table, line = bytearray(), code.co_firstlineno
    for start, end, number in code.co_lines():
        for unit in range(start, end, 16):
            length = min(16, end - unit) // 2
            kind = 15 if number is None else 13
            table.append(0x80 | kind << 3 | length - 1)
            if number is not None:
                delta, line = number - line, number
                value = delta << 1 if delta >= 0 else -delta << 1 | 1
                while value >= 64:
                    table.append(0x40 | value & 63)
                    value >>= 6
                table.append(value)
    constants = tuple(
        _without_columns(each) if isinstance(each, CodeType) else each for each in code.co_consts
    )
    slim = code.replace(co_linetable=bytes(table), co_consts=constants)
    # A later version of Python may use another format.
    return slim if _lines(slim) == _lines(code) else code.replace(co_consts=constants)


def _lines(code: CodeType) -> list[int | None]:
    return [line for start, end, line in code.co_lines() for _ in range(start, end)]


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _OLDEST_TIME)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    # Uncompressed, it would start no faster, and exceed the size limit.
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _key(extra: Mapping[str, bytes], *, bytecode: bool) -> str:
    """Return a digest of the sources' paths, sizes and times, and of *extra*; read no source."""
    form = (sys.implementation.cache_tag, _bytecode("", b""), bytecode)
    key = hashlib.sha256(repr(form).encode())
    for name, path in _sources():
        seen = path.stat()
        key.update(f"{name}\0{path}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ino}\n".encode())
    for name in sorted(extra):
        key.update(f"{name}\0{len(extra[name])}\0".encode() + extra[name])
    return key.hexdigest()[:16]
