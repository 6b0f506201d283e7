from __future__ import annotations

import importlib.util
import sys

import pytest

from kinetic_images.builders.layers.bytecode import bytecode_kind, cached_path, compiled

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_only_the_version_of_this_interpreter_has_bytecode() -> None:
    kind = bytecode_kind(OWN) or ""

    assert importlib.util.MAGIC_NUMBER.hex() in kind
    assert bytecode_kind("3.99") is None
    assert bytecode_kind(f"{OWN}.1") is None


@pytest.mark.parametrize("path", ["a/b.py", "a/__init__.py", "top.py"])
def test_bytecode_is_where_python_looks_for_it(path: str) -> None:
    assert cached_path(path) == importlib.util.cache_from_source(path)


@pytest.mark.parametrize(
    "source",
    [
        b"print 'old'\n",
        b"{% template %}\n",
        b"x = 1\0\n",
        b"# coding: nonsense\n",
        b"\xff\xfe",
        b"(" * 5000,
        b"x = " + b"-" * 200_000 + b"1\n",
        b"lambda: " * 1001 + b"0",
    ],
    ids=["python 2", "template", "nul", "coding", "bytes", "parentheses", "deep", "nested"],
)
def test_a_source_that_does_not_compile_has_none(source: bytes) -> None:
    assert compiled(source, "/x.py") is None


def test_docstrings_and_assertions_stay_with_any_options_of_this_process() -> None:
    made = compiled(b'"""Doc."""\nassert x\n', "/x.py") or b""

    assert b"Doc." in made
    assert b"/x.py" in made
