"""The value that importing a module gives a global, by its source: a literal, one of the machine, or unknown."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

_MACHINE: Final = frozenset(
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
_ATTRIBUTES: Final = frozenset(
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


_REPEATABLE: Final = re.compile(
    r"(.*\.)?(environ\.get|platform\.system|"
    r"Path|PurePath|abspath|absolute|basename|bool|cpu_count|default_backend|"
    r"device|device_count|devices|dirname|expanduser|expandvars|float|"
    r"getenv|gethostname|home|int|is_available|join|joinpath|"
    r"len|local_device_count|local_devices|lower|machine|"
    r"max|min|node|process_count|process_index|realpath|resolve|split|str|"
    r"strip|uname|upper|with_name|with_suffix)"
)
"""Functions of the machine, and of paths and texts, that have no effects and return the same again."""
_OF_DEVICES: Final = re.compile(r".*(default_backend|device.*|is_available|process_.*)")
_OF_FOLDER: Final = re.compile(r".*(absolute|abspath|realpath|resolve)")
"""Those that depend on the working directory."""
_LIBRARIES: Final = sys.stdlib_module_names | {"builtins", "jax", "torch"}
"""Where these functions are defined: user code may use the same names."""


class Kind(Enum):
    """What is known of the value that an import gives a global."""

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
    """Of a literal."""


class _Text(NamedTuple):
    """The globals in the source of a module."""

    assigned: dict[str, list[ast.expr | None]]
    """Expressions, or None for what is bound otherwise: imports, definitions, loops."""
    imported: dict[str, tuple[str, str]]
    """Module and name behind `from module import name`."""
    rebound: frozenset[str]
    """What functions assign with `global`."""


def initial_of(module: ModuleType, name: str) -> Initial:
    """Return what is known of the value that importing *module* gives its global *name*."""
    text = _text_of(module)
    if text is None or "*" in text.assigned:
        return Initial(Kind.UNKNOWN)
    found = text.assigned.get(name)
    if found is None:
        lazy = "__getattr__" in text.assigned  # The module makes it on first access.
        return Initial(Kind.UNKNOWN if lazy or "." in name else Kind.NOTHING)
    if len(found) == 1 and found[0] is not None:
        try:
            return Initial(Kind.LITERAL, ast.literal_eval(found[0]))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
    if name in text.rebound or not _of_machine(module, name, set()):
        return Initial(Kind.UNKNOWN)
    return Initial(Kind.UNKNOWN if _was_set(module, name) else Kind.MACHINE)


def _was_set(module: ModuleType, name: str) -> bool:
    """Tell whether a global of the machine certainly has another value than the import gave it."""
    try:
        value = functools.reduce(getattr, name.split("."), module)
        again = _again(module, name)
        return all(type(one) is not type(value) or one != value for one in again)
    except Exception:  # noqa: BLE001 - names used by the import may be gone
        return False


def _again(module: ModuleType, name: str) -> list[Any]:
    """Evaluate again what *module* assigns to its global *name*.

    Raises:
        LookupError: It may have effects, or have had another value at the import.
    """
    text = _text_of(module)
    if text is None:
        raise LookupError
    if origin := text.imported.get(name):
        return _again(sys.modules[origin[0]], origin[1])
    values = []
    for expression in text.assigned[name]:
        if expression is None:
            raise LookupError
        names = dict(vars(module))
        used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        for one in used & text.assigned.keys():
            if not _is_called(names.get(one, str)):  # It may have been set, too.
                (names[one],) = _again(module, one)
        for node in ast.walk(expression):
            if isinstance(node, ast.Call):
                _check_call(node, expression, names, branches=len(text.assigned[name]))
        code = compile(ast.Expression(expression), "<again>", "eval")
        values.append(eval(code, names))  # noqa: S307 - the import ran it
    return values


def _is_called(value: Any) -> bool:
    return isinstance(value, ModuleType) or callable(value)


def _check_call(node: ast.Call, whole: ast.expr, names: dict[str, Any], branches: int) -> None:
    """Refuse a call that may have effects, or may return another value than at the import.

    Raises:
        LookupError: It may.
    """
    called, root = ast.unparse(node.func), node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not _REPEATABLE.fullmatch(called):
        raise LookupError
    if isinstance(root, ast.Name):
        value = names.get(root.id)
        of = value if _is_called(value) else type(value)
        if root.id in names and _top_level_of(of) not in _LIBRARIES:
            raise LookupError
    if branches > 1 and _OF_DEVICES.fullmatch(called):
        raise LookupError  # The import may not have called it, and it starts a device.
    if _OF_FOLDER.fullmatch(called):
        used = [node.id for node in ast.walk(whole) if isinstance(node, ast.Name)]
        paths = [str(names[one]) for one in used if not _is_called(names.get(one, str))]
        if not any(path.startswith("/") for path in paths):
            raise LookupError


def _of_machine(module: ModuleType, name: str, seen: set[tuple[str, str]]) -> bool:
    text = _text_of(module)
    if text is None or (module.__name__, name) in seen:
        return False
    seen.add((module.__name__, name))
    origin = text.imported.get(name)
    if origin is not None and (other := sys.modules.get(origin[0])) is not None:
        return _of_machine(other, origin[1], seen)
    nodes = [node for one in text.assigned.get(name, ()) if one for node in ast.walk(one)]
    if any(isinstance(node, ast.Attribute) and node.attr == "argv" for node in nodes):
        return False  # It belongs to the caller.
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if node.attr in _ATTRIBUTES or "device" in node.attr:
                return True
        elif isinstance(node, ast.Name) and (
            node.id == "__file__"
            or _top_level_of(vars(module).get(node.id)) in _MACHINE
            or _of_machine(module, node.id, seen)
        ):
            return True
    return False


def _top_level_of(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


@functools.lru_cache(64)
def _text_of(module: ModuleType) -> _Text | None:
    """Parse the source of *module*; None if it has none."""
    try:
        tree = ast.parse(Path(str(module.__file__)).read_bytes())
    except (AttributeError, OSError, SyntaxError, ValueError, RecursionError):
        return None
    text = _Text(
        {},
        {},
        frozenset(
            name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
        ),
    )
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pairs.append((node.name, None))
            if isinstance(node, ast.ClassDef):
                pairs += _attributes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            pairs += [((one.asname or one.name).partition(".")[0], None) for one in node.names]
            if isinstance(node, ast.ImportFrom):
                origin = _absolute(node, module)
                text.imported.update({a.asname or a.name: (origin, a.name) for a in node.names})
        elif isinstance(node, ast.Assign):
            waiting.append(node.value)
            pairs += [pair for one in node.targets for pair in _pairs(one, node.value)]
        elif isinstance(node, ast.AnnAssign):
            pairs += _pairs(node.target, node.value) if node.value else ()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            pairs.append((node.id, None))
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
        for name, value in pairs:
            text.assigned.setdefault(name, []).append(value)
    return text


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
    for one in node.body:
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            for name, value in (pair for target in targets for pair in _pairs(target, one.value)):
                yield f"{node.name}.{name}", value


def _absolute(node: ast.ImportFrom, module: ModuleType) -> str:
    if not node.level:
        return node.module or ""
    package = module.__name__.split(".")
    if not hasattr(module, "__path__"):
        package.pop()
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *filter(None, [node.module])])
