"""Every `kinetic …` that a message or a document names is a command that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from kinetic_cli.main import cli

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"(?<![\w./@-])kinetic ((?:[a-z][\w-]*[ \t]?)+)")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")]


def test_messages_name_commands_that_exist() -> None:
    missing = [
        f"{path.name}: kinetic {words}"
        for path in sorted(ROOT.glob("packages/*/src/**/*.py"))
        for text in messages(path)
        for words in COMMAND.findall(text)
        if not exists(words)
    ]

    assert missing == []


def test_documents_name_commands_that_exist() -> None:
    missing = [
        f"{path.name}: kinetic {words}"
        for path in DOCUMENTS
        for code in re.findall(r"```.*?```|`[^`]+`", path.read_text(encoding="utf-8"), re.DOTALL)
        for words in COMMAND.findall(code)
        if not exists(words)
    ]

    assert missing == []


def exists(words: str) -> bool:
    command: click.Command | None = cli
    context = click.Context(cli)
    for word in words.split():
        if not isinstance(command, click.Group):
            return True  # The rest is arguments.
        command = command.get_command(context, word)
        if command is None:
            return False
    return True


def messages(path: Path) -> Iterator[str]:
    """Iterate over the strings of a module that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    yield from (
        text.value for text in texts if isinstance(text.value, str) and id(text) not in docstrings
    )
