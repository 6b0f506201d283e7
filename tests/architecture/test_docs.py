"""What the documents say is so: their examples run, and the commands, modules, errors and messages exist."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

from kinetic_cli.main import cli

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python runnable\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(block[1], id=f"{path.stem}:{text.count(chr(10), 0, block.start()) + 1}")
    for path in sorted(ROOT.glob("docs/*.md"))
    for text in [path.read_text(encoding="utf-8")]
    for block in BLOCK.finditer(text)
]
COMMAND = re.compile(r"(?<![\w./@-])kinetic ((?:[a-z][\w-]*[ \t]?)+)")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
MODULES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    for folder in [*ROOT.glob("packages/*/src"), *ROOT.glob("tests/*/src")]
    for path in folder.rglob("*.py")
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_runnable_example_prints_its_expected_lines(
    example: str, tmp_path: Path, warm: Callable[[Path], Path]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]\nname = 'users'\nversion = '1'\n")
    (project / "train.py").write_text(example, encoding="utf-8")
    environ = os.environ.items()  # noqa: TID251 - a child's begins with ours
    kept = {k: v for k, v in environ if not k.startswith("KINETIC_")}

    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=project,
        env={**kept, "KINETIC_HOME": str(warm(tmp_path / "home")), "KINETIC_BACKEND": "local"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    for expected in re.findall(r"# → (.*)$", example, re.MULTILINE):
        assert expected in lines, f"{expected!r} is not (or too late) in:\n{done.stdout}"


def test_every_error_class_is_in_the_document_of_errors() -> None:
    told = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    ours = {
        name
        for module in (
            "kinetic.errors",
            "kinetic_payload.errors",
            "kinetic_images.errors",
            "kinetic_k8s.errors",
        )
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }

    assert [name for name in sorted(ours) if not re.search(rf"\b{name}`", told)] == []


@pytest.mark.parametrize(
    "block",
    re.findall(
        r"^```python\n(.*?)^```",
        "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md"))),
        re.DOTALL | re.MULTILINE,
    ),
)
def test_other_examples_are_valid_python(block: str) -> None:
    compile(block, "docs", "exec")


@pytest.mark.parametrize(
    ("name", "section", "least"),
    [("troubleshooting", ("", "## What killed"), 80), ("errors", ("## By symptom", "\n## "), 35)],
)
def test_messages_that_a_page_quotes_are_those_of_the_code(
    name: str, section: tuple[str, str], least: int
) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    begin, end = section
    table = page[page.index(begin) + len(begin) :].partition(end)[0]
    cells = re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    # Texts of Kubernetes are in the objects that tests recorded.
    recorded = [path for path in ROOT.glob("tests/kinetic_k8s/reading/*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in recorded]
    texts += [text for _, text, _ in strings()]
    known = "\n".join(texts)
    missing = [
        text for text in quoted if not all(part in known for part in re.split(" ?… ?", text))
    ]

    assert len(quoted) >= least
    assert missing == []


def test_the_dockerfile_in_the_docs_is_the_example_that_is_built() -> None:
    text = (ROOT / "docs/images.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```dockerfile\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    assert block == (ROOT / "examples/custom_image/Dockerfile").read_text(encoding="utf-8")


def test_messages_name_commands_that_exist() -> None:
    missing = [
        f"{name}: kinetic {words}"
        for name, text, documents in strings()
        for words in COMMAND.findall(text)
        if not documents and not exists(words)
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


@cache
def strings() -> list[tuple[str, str, bool]]:
    """Return the strings of all modules: the file's name, the text, and whether it is a docstring."""
    found = []
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            (path.name, node.value, id(node) in docstrings)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    return found


def test_tests_that_documents_name_exist() -> None:
    files = [*ROOT.glob("tests/**/*.py")]
    known = "\n".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in files)
    for document in DOCUMENTS:
        for name in re.findall(r"`(tests?[_/][\w/.]+)…?`", document.read_text(encoding="utf-8")):
            wanted = name if set("/.") & set(name) else f"def {name}"
            assert wanted in known, f"{document} names {name}"


def test_modules_that_answer_questions_exist() -> None:
    document = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
    questions = document.partition("## Import rules")[0]
    named = set(re.findall(r"`(kinetic\w*(?:\.\w+)+)`", questions)) - {"kinetic.run"}

    assert len(named) > 20
    assert named - MODULES == set()


def test_the_walk_through_a_call_names_modules_that_are_there() -> None:
    walk = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
    packages = {
        "payload": "kinetic_payload",
        "runner": "kinetic_runner",
        "kinetic_k8s": "kinetic_k8s",
    }
    named = [
        f"{packages[name.split('.')[0]]}.{name.partition('.')[2]}"
        if name.split(".")[0] in packages
        else f"kinetic.{name}"
        for name in re.findall(r"`([a-z]\w*(?:\.\w+)*)`", walk)
        if name not in ("train", "run", "kinetic", "kinetic_payload", "kinetic_runner")
    ]

    assert len(named) > 100
    assert set(named) - MODULES == set()
