"""What is true of the tests themselves: scripts of a user's are files, not long strings."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
LONGEST_SCRIPT = 30
"""Lines of Python in a string. What is longer is a fixture project: a file below `projects`, beside the test."""


def scripts(source: str, longest: int) -> Iterator[tuple[int, int]]:
    """Yield line and length of each string of *source* that is Python of more than *longest* lines."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            # A name stands for a value that is put in: what is around it is Python, or it is not.
            words = [getattr(part, "value", None) for part in node.values]
            text = "".join(word if isinstance(word, str) else "value" for word in words)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in parts:
                continue
            text = node.value
        else:
            continue
        script = textwrap.dedent(text).strip()
        length = script.count("\n") + 1
        if length > longest and is_python(script):
            yield node.lineno, length


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):  # ValueError: half a pair of surrogates.
        return False
    return True


def test_long_scripts_are_fixture_projects() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {length} lines"
        for path in sorted(TESTS.rglob("*.py"))
        if "projects" not in path.relative_to(TESTS).parts
        for line, length in scripts(path.read_text(encoding="utf-8"), LONGEST_SCRIPT)
    ]

    assert found == [], "make it a file below `projects`, and have the test copy it"
