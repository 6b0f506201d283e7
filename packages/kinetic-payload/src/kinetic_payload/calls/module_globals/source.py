"""What source code tells of the globals of modules: the values that an import gives them, and who changes them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

_ATTRIBUTES: Final = re.compile(r"\.\s*(\w+)")
_DECLARED: Final = re.compile(r"\bglobal\b(.*)")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Change(NamedTuple):
    """Code that assigns a global, or changes the object that a global holds."""

    path: tuple[str, ...]
    """`("config", "RATE")` for `config.RATE = 2`, `("CFG",)` for `CFG["lr"] = 2` and `CFG.update(lr=2)`."""
    assigns: bool
    """Whether the last name of the path is assigned, rather than the object changed that it names."""
    at_import: bool
    """Whether it is outside functions."""


class Source:
    """The source of a module, of a script, or of the cells of a notebook."""

    def __init__(self, *texts: str, package: str = "") -> None:
        self.text = "\n".join(texts)
        self._texts = texts
        self._package = package
        self._bound: dict[str, list[ast.expr | None]] = {}

    @functools.cached_property
    def bound(self) -> dict[str, list[ast.expr | None]]:
        """By name: the expressions that the module assigns; None for each other binding (definition, loop)."""
        for tree in self._trees:
            self._read(tree, "")
        return self._bound

    @functools.cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """By name: the module, and the name in it; the name is empty if it is the module itself."""
        return dict(
            pair for tree in self._trees for pair in self._imports(_outside_functions(tree))
        )

    @functools.cached_property
    def assigned(self) -> frozenset[str]:
        """Names that the source may assign: those of attributes, and those that it declares `global`."""
        declared = " ".join(_DECLARED.findall(self.text))
        return frozenset((*_ATTRIBUTES.findall(self.text), *re.findall(r"\w+", declared)))

    @functools.cached_property
    def rebound(self) -> frozenset[str]:
        """Names that functions declare `global`."""
        nodes = (node for tree in self._trees for node in ast.walk(tree))
        return frozenset(n for node in nodes if isinstance(node, ast.Global) for n in node.names)

    @functools.cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that the source makes to globals of any module."""
        found = (change for tree in self._trees for change in _changes(tree, None))
        return tuple(dict.fromkeys(found))

    @functools.cached_property
    def imported_within(self) -> dict[str, tuple[str, str]]:
        """Like `imported`, also for imports within functions."""
        return dict(pair for tree in self._trees for pair in self._imports(ast.walk(tree)))

    def _imports(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, str]]]:
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._names_of(node)

    def _names_of(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str]]]:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                yield alias.asname or alias.name, (self._absolute(node), alias.name)
            else:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, (alias.name if alias.asname else top, "")

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self._package.split(".")
        above = parents[: len(parents) - node.level + 1]
        return ".".join([*above, *filter(None, [node.module])])

    @functools.cached_property
    def _trees(self) -> list[ast.Module]:
        trees = []
        for text in self._texts:
            try:
                trees.append(ast.parse(text))
            except (SyntaxError, ValueError, RecursionError):
                continue  # Commands of a notebook's shell, for instance
        return trees

    def _read(self, node: ast.AST, owner: str) -> None:
        """Note the names that *node* binds in the module, or in its class *owner*."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._bind(owner + node.name, None)
            if isinstance(node, ast.ClassDef):
                for statement in node.body:
                    self._read(statement, f"{owner}{node.name}.")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name, _ in self._names_of(node):
                self._bind(owner + name, None)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, owner)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, node.value, owner)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self._bind(owner + node.id, None)
        elif not isinstance(node, ast.Lambda):
            for part in ast.iter_child_nodes(node):
                self._read(part, owner)

    def _assign(self, target: ast.expr, value: ast.expr | None, owner: str) -> None:
        if isinstance(target, ast.Name):
            self._bind(owner + target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts: list[ast.expr] = getattr(value, "elts", [])
            starred = any(isinstance(part, ast.Starred) for part in (*parts, *target.elts))
            fit = len(parts) == len(target.elts) and not starred
            for index, inner in enumerate(target.elts):
                self._assign(inner, parts[index] if fit else None, owner)
        else:
            self._read(target, owner)

    def _bind(self, name: str, value: ast.expr | None) -> None:
        self._bound.setdefault(name, []).append(value)


def source_of(module: ModuleType) -> Source | None:
    """Parse the source of *module*; return None if there is none."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    return _of_file(
        file, module.__name__ if hasattr(module, "__path__") else str(module.__package__)
    )


def source_of_main(namespace: Mapping[str, Any]) -> Source:
    """Parse the script of *namespace*, or the cells of its notebook; what cannot be parsed is left out."""
    file, cells = namespace.get("__file__"), namespace.get("In")
    found = _of_file(file, str(namespace.get("__package__"))) if isinstance(file, str) else None
    return found or Source(*(cells if isinstance(cells, list) else ()))


@functools.lru_cache(1000)
def _of_file(file: str, package: str) -> Source | None:
    try:
        return Source(Path(file).read_text(encoding="utf-8"), package=package)
    except (OSError, ValueError):
        return None


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for part in () if isinstance(node, _FUNCTIONS) else ast.iter_child_nodes(node):
        yield from _outside_functions(part)


def _changes(node: ast.AST, local: frozenset[str] | None) -> Iterator[Change]:
    """Iterate over the changes in *node*; *local* are the variables of the function around it, if any."""
    if isinstance(node, _FUNCTIONS):
        parts = list(ast.walk(node))
        names = {part.arg for part in parts if isinstance(part, ast.arg)}
        names |= {n.id for n in parts if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        declared = {n for part in parts if isinstance(part, ast.Global) for n in part.names}
        local = (local or frozenset()) | (names - declared)
    changed: ast.expr | None = None
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        changed = node
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        # A call whose result nobody uses is made for what it changes.
        function = node.value.func
        changed = function.value if isinstance(function, ast.Attribute) else None
    if changed is not None:
        path: list[str] = []
        assigns = isinstance(node, ast.Attribute)
        while isinstance(changed, ast.Attribute | ast.Subscript):
            if isinstance(changed, ast.Subscript):
                path, assigns = [], False
            else:
                path.append(changed.attr)
            changed = changed.value
        if isinstance(changed, ast.Name) and changed.id not in (local or ()):
            yield Change((changed.id, *reversed(path)), assigns, local is None)
    for part in ast.iter_child_nodes(node):
        yield from _changes(part, local)
