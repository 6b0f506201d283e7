import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from kinetic_runner.child.import_hook import after_import


def test_the_hook_waits_for_a_real_import(tmp_path: Path, monkeypatch: Any) -> None:
    name = f"late_{os.getpid()}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("ready = True")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[bool] = []
    finders = list(sys.meta_path)

    after_import(name, lambda module: seen.append(module.ready))
    assert importlib.util.find_spec(name) is not None
    assert seen == []
    __import__(name)

    assert seen == [True]
    assert sys.meta_path == finders
