"""The documents that name modules name those that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
MODULES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    for folder in [*ROOT.glob("packages/*/src"), *ROOT.glob("tests/*/src")]
    for path in folder.rglob("*.py")
}


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
