"""Initial values of globals, as the text of their module shows them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kinetic_payload.calls.module_globals.initial_values import Initial, Kind, initial_of

Module = Callable[[str, str], ModuleType]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Return what makes, and imports, a module of a text."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return make


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("y = 1", Kind.NOTHING),
        ("x: int", Kind.NOTHING),
        ("def f():\n x = 1", Kind.NOTHING),
        ("x = {'a': [1, -2.5, None]}", Kind.LITERAL),
        ("x: dict = {}", Kind.LITERAL),
        ("y, (x, *z) = 1, (2, 3)", Kind.UNKNOWN),
        ("(y, x) = 1, 2", Kind.LITERAL),
        ("x = 1\nx = 2", Kind.UNKNOWN),
        ("if 1:\n x = 1\nelse:\n x = 2", Kind.UNKNOWN),
        ("for x in [1]: pass", Kind.UNKNOWN),
        ("import json as x", Kind.UNKNOWN),
        ("def x(): pass", Kind.UNKNOWN),
        ("from json import *\ny = 1", Kind.UNKNOWN),
        ("x = list('ab')", Kind.UNKNOWN),
        ("import sys\nx = sys.argv", Kind.UNKNOWN),
        ("import uuid, time\nx = uuid.uuid4(), time.time()", Kind.UNKNOWN),
        ("import os\nx = os.environ.get('A', 1)", Kind.MACHINE),
        ("from os import getpid as pid\nx = pid()", Kind.MACHINE),
        ("from pathlib import Path\ny = Path(__file__).parent\nx = y / 'data'", Kind.MACHINE),
        ("from pathlib import Path\nx = Path.home()", Kind.MACHINE),
        ("import os\nx = os.getpid()\ndef f():\n global x\n x = 1", Kind.UNKNOWN),
        ("class jax:\n device_count = int\nx = jax.device_count()", Kind.MACHINE),
        ("from near import y as x", Kind.MACHINE),
        ("import x_of_two\nx = x_of_two.x", Kind.UNKNOWN),
    ],
)
def test_the_kind_of_a_global(module: Module, text: str, kind: Kind) -> None:
    module("near", "import socket\ny = socket.gethostname()\n")
    module("x_of_two", "x = max(1, 2)")

    assert initial_of(module("made", text), "x").kind is kind


def test_a_literal_is_known_with_its_value_and_globals_without_source_are_unknown(
    module: Module,
) -> None:
    assert initial_of(module("made", "x = {'a': [1]}"), "x") == Initial(Kind.LITERAL, {"a": [1]})
    assert initial_of(ModuleType("made"), "x").kind is Kind.UNKNOWN
    assert initial_of(sys, "path").kind is Kind.UNKNOWN
