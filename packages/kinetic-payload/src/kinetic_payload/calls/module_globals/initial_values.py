"""The value that importing a module gives a global, by its source: a literal, machine-dependent or unknown."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

_MACHINE_MODULES: Final = frozenset(
    [
        "getpass",
        "multiprocessing",
        "nt",
        "os",
        "platform",
        "posix",
        "posixpath",
        "psutil",
        "shutil",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
    ]
)
"""Modules whose results depend on the machine."""
_MACHINE_ATTRIBUTES: Final = frozenset(
    [
        "cwd",
        "default_backend",
        "expanduser",
        "home",
        "is_available",
        "process_count",
        "process_index",
    ]
)


class Kind(Enum):
    """The origin of the value that an import gives a global, as far as it is known."""

    NOTHING = auto()
    """The source assigns nothing of that name."""
    LITERAL = auto()
    MACHINE = auto()
    """It depends on the machine: paths, devices, environment variables."""
    UNKNOWN = auto()


class Initial(NamedTuple):
    """The value that an import gives, as far as the module's source shows."""

    kind: Kind
    value: Any = None
    """The value of a literal."""


class _Source(NamedTuple):
    """The globals in the source of a module."""

    assigned: dict[str, list[ast.expr | None]]
    """By name: the assigned expressions; None for each other binding (import, definition, loop)."""
    imported: dict[str, tuple[str, str]]
    """By name: module and name of `from module import name`."""
    mutated: set[str]
    """Names of objects that the import may change after it has made them: by items and by methods."""
    rebound: frozenset[str]
    """Names that functions declare `global`."""
    kept: frozenset[str]
    """Names of globals, and `.attribute`, that a function tests before it sets them, as in `if model is None`."""


def assigned_in(module: ModuleType) -> Iterator[str]:
    """Iterate over the globals, and `Class.attribute`, to which the source of *module* assigns an expression."""
    text = _parse_source(module)
    if text is not None and "*" not in text.assigned:
        for name, found in reversed(text.assigned.items()):  # Collected from last to first.
            if any(found) and "__" not in name:
                yield name


@functools.lru_cache(1 << 16)
def literals_in(module: ModuleType) -> dict[str, Any]:
    """Return the globals, and `Class.attribute`, that the source of *module* assigns once, and a literal."""
    text = _parse_source(module)
    literals: dict[str, Any] = {}
    if text is None:
        return literals
    for name in assigned_in(module):
        first, *others = text.assigned[name]
        if first is not None and not others:
            with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                value = ast.literal_eval(first)
                if name not in text.mutated or type(value) not in (dict, list, set):
                    literals[name] = value
    return literals


def imported_in(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the names that *module* imports from others, with the module and the name there."""
    text = _parse_source(module)
    return {} if text is None else text.imported


def is_declared(module: ModuleType, name: str) -> bool:
    """Tell whether a function of *module* declares *name* `global`, to give it another value."""
    text = _parse_source(module)
    return text is not None and name in text.rebound


def is_kept(module: ModuleType, name: str) -> bool:
    """Tell whether *module* makes the value of *name* when it first needs it, and keeps it."""
    text = _parse_source(module)
    _, dot, last = name.rpartition(".")
    return text is not None and f"{dot}{last}" in text.kept


@functools.lru_cache(1 << 16)
def initial_of(module: ModuleType, name: str) -> Initial:
    """Return what is known of the value that importing *module* gives its global *name*."""
    text = _parse_source(module)
    if text is None or "*" in text.assigned:
        return Initial(Kind.UNKNOWN)
    found = text.assigned.get(name)
    if found is None:
        lazy = "__getattr__" in text.assigned  # The module makes it on first access.
        return Initial(Kind.UNKNOWN if lazy or "." in name else Kind.NOTHING)
    if name in (literals := literals_in(module)):
        return Initial(Kind.LITERAL, literals[name])
    machine = False
    with suppress(RecursionError):
        machine = name not in text.rebound and _of_machine(module, name, set())
    return Initial(Kind.MACHINE if machine else Kind.UNKNOWN)


def _of_machine(module: ModuleType, name: str, seen: set[tuple[str, str]]) -> bool:
    text = _parse_source(module)
    if text is None or (module.__name__, name) in seen:
        return False
    seen.add((module.__name__, name))
    origin = text.imported.get(name)
    if origin is not None and (other := sys.modules.get(origin[0])) is not None:
        return _of_machine(other, origin[1], seen)
    expressions = [expression for expression in text.assigned.get(name, ()) if expression]
    nodes = [node for expression in expressions for node in ast.walk(expression)]
    if any(isinstance(node, ast.Attribute) and node.attr == "argv" for node in nodes):
        return False  # `sys.argv` belongs to the script, not to the machine.
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if node.attr in _MACHINE_ATTRIBUTES or "device" in node.attr:
                return True
        elif isinstance(node, ast.Name):
            value = vars(module).get(node.id)
            home = getattr(
                value, "__name__" if isinstance(value, ModuleType) else "__module__", None
            )
            if (
                node.id == "__file__"
                or (isinstance(home, str) and home.partition(".")[0] in _MACHINE_MODULES)
                or _of_machine(module, node.id, seen)
            ):
                return True
    return False


@functools.lru_cache(1 << 16)
def _parse_source(module: ModuleType) -> _Source | None:
    """Parse the source of *module*; return None if that is not possible."""
    try:
        tree = ast.parse(Path(str(module.__file__)).read_bytes())
    except (AttributeError, OSError, SyntaxError, ValueError, RecursionError):
        return None
    declared: dict[str, set[str]] = {}
    kept: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = [*ast.walk(function)]
            names = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
            changed = {
                _base(node)
                for node in nodes
                if isinstance(node, ast.Attribute | ast.Subscript)
                and not isinstance(node.ctx, ast.Load)
            }
            declared[function.name] = names
            kept |= (names | changed) & {_base(part) for node in nodes for part in _tested(node)}
    rebound = {name for names in declared.values() for name in names}
    text = _Source({}, {}, set(), frozenset(rebound), frozenset(kept))
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pairs.append((node.name, None))
            if isinstance(node, ast.ClassDef):
                pairs += _attributes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            pairs += [((a.asname or a.name).partition(".")[0], None) for a in node.names]
            if isinstance(node, ast.ImportFrom):
                with suppress(ImportError):  # The module may expect a relative import to fail.
                    name = "." * node.level + (node.module or "")
                    origin = resolve_name(name, module.__package__)
                    text.imported.update({a.asname or a.name: (origin, a.name) for a in node.names})
        elif isinstance(node, ast.Assign):
            waiting.append(node.value)
            waiting += [
                each for each in node.targets if isinstance(each, ast.Attribute | ast.Subscript)
            ]
            pairs += [pair for target in node.targets for pair in _pairs(target, node.value)]
        elif isinstance(node, ast.AnnAssign):
            pairs += _pairs(node.target, node.value) if node.value else ()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            pairs.append((node.id, None))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                text.mutated.add(_dotted(node.func.value))
            elif isinstance(node.func, ast.Name):  # What such a function sets, the import sets.
                pairs += [(name, None) for name in declared.get(node.func.id, ())]
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            pairs.append((_dotted(node), None))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            text.mutated.add(_dotted(node.value))
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
        for name, value in pairs:
            text.assigned.setdefault(name, []).append(value)
    return text


def _base(node: ast.expr) -> str:
    """Return the name of the global, or `.attribute`, that *node* is or is an item of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _dotted(node: ast.expr) -> str:
    """Return `name.attribute`; something else if *node* is none."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return getattr(node, "id", "")


def _tested(node: ast.AST) -> Iterator[ast.expr]:
    """Iterate over what *node* tests for a value at all."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        yield node.left
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        yield node.comparators[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield node.values[0]
    elif isinstance(node, ast.If | ast.IfExp):
        yield node.test


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Iterate over the names in *target*, each with the part of *value* that is assigned to it."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _pairs(target.value, None)
    elif isinstance(target, ast.Tuple | ast.List):
        parts: list[ast.expr] = getattr(value, "elts", [])
        starred = any(isinstance(part, ast.Starred) for part in (*parts, *target.elts))
        fit = len(parts) == len(target.elts) and not starred
        for index, inner in enumerate(target.elts):
            yield from _pairs(inner, parts[index] if fit else None)


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Iterate over the attributes that the body of a class assigns directly."""
    for part in node.body:
        if isinstance(part, ast.Assign | ast.AnnAssign) and part.value:
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            for name, value in (pair for target in targets for pair in _pairs(target, part.value)):
                yield f"{node.name}.{name}", value
