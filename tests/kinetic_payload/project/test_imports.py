"""An import is found wherever it is, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_payload.project.imports import file_that_imports
from kinetic_payload.project.snapshot import take_snapshot


def found(folder: Path, **files: str) -> str | None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return file_that_imports(take_snapshot(folder), "keras")


@pytest.mark.parametrize(
    "text",
    [
        "import keras",
        "import os, keras.layers as layers",
        "from keras import ops",
        "from keras.layers import Dense",
        "def train():\n    import keras\n",
        "try:\n    from keras import (\n        ops,\n    )\nexcept ImportError:\n    pass\n",
        "if True: import keras",
    ],
)
def test_an_import_is_found(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, a="import os\n", b__model=text) == "b/model.py"


@pytest.mark.parametrize(
    "text",
    [
        "# import keras",
        "'''\nimport keras\n'''",
        "import keras_tuner",
        "from mine import keras",
        "from .keras import ops",
        "import keras(",
        "keras = 1",
    ],
)
def test_nothing_else_is_taken_for_one(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, a=text) is None
