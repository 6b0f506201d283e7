"""Every Python block of docs/ that is marked `runnable` runs as a script and prints what it says."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python runnable\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(block[1], id=f"{path.stem}:{text.count(chr(10), 0, block.start()) + 1}")
    for path in sorted(ROOT.glob("docs/*.md"))
    for text in [path.read_text(encoding="utf-8")]
    for block in BLOCK.finditer(text)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs_and_prints_what_stands_beside_it(
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


def test_every_error_is_told() -> None:
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


def test_the_guide_for_beginners_is_made_of_examples_that_run() -> None:
    guide = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")

    assert len(BLOCK.findall(guide)) >= 5


@pytest.mark.parametrize(
    "block",
    re.findall(
        r"^```python\n(.*?)^```",
        "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md"))),
        re.DOTALL | re.MULTILINE,
    ),
)
def test_what_does_not_run_by_itself_is_python_all_the_same(block: str) -> None:
    compile(block, "docs", "exec")


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\|([^|]*)\|", page.partition("## What killed")[0], re.MULTILINE)
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    # Texts of Kubernetes are in the objects that tests recorded.
    recorded = [path for path in ROOT.glob("tests/kinetic_k8s/reading/*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in recorded]
    for path in ROOT.glob("packages/*/src/**/*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts += [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    known = "\n".join(texts)
    missing = [
        text for text in quoted if not all(part in known for part in re.split(" ?… ?", text))
    ]

    assert len(quoted) > 80
    assert missing == []


def test_the_dockerfile_in_the_docs_is_the_example_that_is_built() -> None:
    text = (ROOT / "docs/images.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```dockerfile\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    assert block == (ROOT / "examples/custom_image/Dockerfile").read_text(encoding="utf-8")
