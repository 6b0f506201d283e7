"""`docs/where.md` is true: every module once, nothing that is gone, and the lines of the modules."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
MODULES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    for folder in ROOT.glob("packages/*/src")
    for path in folder.rglob("*.py")
}


def test_every_module_stands_in_one_table_and_nothing_that_is_gone() -> None:
    named = Counter(re.findall(r"^\| `(kinetic[\w.]*)` \|", DOCUMENT, re.MULTILINE))

    assert {module for module, times in named.items() if times > 1} == set()
    assert MODULES - set(named) == set(), "write the tables again: python dev/where.py --write"
    assert set(named) - MODULES == set(), "write the tables again: python dev/where.py --write"


def test_the_tables_say_what_the_modules_say() -> None:
    command = [sys.executable, str(ROOT / "dev" / "where.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"run: python dev/where.py --write\n{done.stdout}{done.stderr}"


def test_what_the_questions_point_to_is_there() -> None:
    questions = DOCUMENT.partition("## Import rules")[0]
    named = set(re.findall(r"`(kinetic\w*(?:\.\w+)+)`", questions)) - {"kinetic.run"}

    assert len(named) > 20
    assert named - MODULES == set()


def test_the_walk_through_a_call_names_modules_that_are_there_and_each_once() -> None:
    concepts = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    walk = concepts.partition("## A walk through")[2].partition("\n## ")[0]
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
    assert [name for name, times in Counter(named).items() if times > 1] == []
