"""Code objects: the names that they use, also those that cloudpickle overlooks, and their source lines."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import linecache
import typing
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"})
_VARIABLES: Final = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_GLOBAL", "LOAD_NAME"})
_LOADS_FROM_CLASS: Final = "LOAD_FROM_DICT_OR_GLOBALS"
"""Annotations use it from Python 3.14 on; it searches the attributes of the enclosing class first."""
_LOADS: Final = frozenset({"LOAD_NAME", _LOADS_FROM_CLASS})


@functools.lru_cache(4000)
def assigned_globals_in(code: CodeType) -> frozenset[str]:
    """Return the globals that *code*, or a function within it, assigns."""
    steps = (step for part in (code, *code_within(code)) for step in dis.get_instructions(part))
    return frozenset(step.argval for step in steps if step.opname == "STORE_GLOBAL")


@functools.lru_cache(4000)
def attributes_in(code: CodeType) -> dict[tuple[str, ...], bool]:
    """Return the attributes of variables that *code*, or code within it, uses, and whether it assigns them.

    `config.net.width` gives `("config", "net")` and `("config", "net", "width")`.
    """
    found: dict[tuple[str, ...], bool] = {}
    for part in (code, *code_within(code)):
        path: tuple[str, ...] = ()
        for step in dis.get_instructions(part):
            if step.opname in _VARIABLES:
                path = (step.argval,)
            elif path and step.opname in _ATTRIBUTES:
                path = (*path, step.argval)
                found[path] = found.get(path, False) or step.opname == "STORE_ATTR"
            elif step.opname != "EXTENDED_ARG" and (step.opname, step.arg) != ("COPY", 1):
                path = ()  # COPY 1 continues the path: it belongs to `config.steps += 1`.
    return found


@functools.lru_cache(4000)
def globals_of_classes_in(code: CodeType) -> frozenset[str]:
    """Return the globals that bodies and annotations of classes within *code* read."""
    names: set[str] = set()
    for part in (code, *code_within(code)):
        names.update(
            step.argval for step in dis.get_instructions(part) if step.opname == _LOADS_FROM_CLASS
        )
    for body in _class_bodies_in(code):
        own: set[str] = set()
        for step in dis.get_instructions(body):
            if step.opname == "STORE_NAME":
                own.add(step.argval)
            elif step.opname in _LOADS and step.argval not in own:
                names.add(step.argval)
    return frozenset(names)


def names_of_classes_in(code: CodeType) -> Iterator[str]:
    """Iterate over the names in string annotations of the classes that *code* defines."""
    for text in _texts_of_classes_in(code):
        yield from _names_in_text(text)


def names_in(annotations: dict[str, Any]) -> Iterator[str]:
    """Iterate over the names in the strings and forward references of *annotations*."""
    for annotation in annotations.values():
        yield from _names_in_part(annotation)


def code_within(code: CodeType) -> Iterator[CodeType]:
    """Iterate over the functions and class bodies within *code*, at every depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from code_within(constant)


def mentions_in(code: CodeType) -> Iterator[str]:
    """Iterate over all names that *code* and code within it use: globals, attributes, imports."""
    for part in (code, *code_within(code)):
        yield from part.co_names


def _class_bodies_in(code: CodeType) -> Iterator[CodeType]:
    """Iterate over the bodies of the classes that *code* defines."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if not constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            yield from _class_bodies_in(constant)


def _names_in_part(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, str):
        yield from _names_in_text(annotation)
    elif isinstance(annotation, typing.ForwardRef):
        yield from _names_in_text(annotation.__forward_arg__)
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            if not isinstance(part, list):
                yield from _names_in_part(part)


@functools.lru_cache(1000)
def _names_in_text(text: str) -> frozenset[str]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(_names_in_tree(tree.body))


def _names_in_tree(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _names_in_text(node.value)
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
        yield from _names_in_tree(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names_in_tree(child)


@functools.lru_cache(4000)
def _texts_of_classes_in(code: CodeType) -> tuple[str, ...]:
    texts = []
    for body in _class_bodies_in(code):
        for inner in code_within(body):
            if inner.co_name == "__annotate__":  # Python 3.14
                texts += [text for text in inner.co_consts if isinstance(text, str)]
        constant: Any = None
        for step in dis.get_instructions(body):
            if step.opname == "LOAD_CONST":
                constant = step.argval
            elif step.argval == "__annotations__" and isinstance(constant, str):
                texts.append(constant)
    return tuple(texts)


def lines_of(code: CodeType) -> str:
    """Return the lines that *code* was compiled from, first to last; "" if they are not known.

    Other lines of a notebook's cell are left out: they may be private.
    """
    if code.co_filename == "<string>":
        # Code that `exec` compiles has this name. From Python 3.13 on, `linecache` has the text of
        # `python -c` under it.
        return ""
    known = linecache.getlines(code.co_filename)
    return "".join(known[code.co_firstlineno - 1 : max(_line_numbers(code))])


def keep_lines(code: CodeType, text: str) -> None:
    """Let tracebacks, debuggers and `inspect.getsource` find *text* as the lines of *code*."""
    name, before = code.co_filename, code.co_firstlineno - 1
    entry = linecache.cache.get(name)
    known = list(entry[2]) if entry is not None and len(entry) == 4 else []
    new = text.splitlines(keepends=True)
    known += ["\n"] * (before + len(new) - len(known))
    known[before : before + len(new)] = new
    # `linecache` never discards an entry without a modification time.
    linecache.cache[name] = (sum(map(len, known)), None, known, name)


def _line_numbers(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (end for _, end, _, _ in code.co_positions() if end is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _line_numbers(constant)
