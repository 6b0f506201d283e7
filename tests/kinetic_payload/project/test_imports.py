from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_payload.project.snapshot import file_that_imports, take_snapshot


@pytest.mark.parametrize(
    ("text", "is_import"),
    [
        ("import keras", True),
        ("import os, keras.layers as layers", True),
        ("from keras import ops", True),
        ("from keras.layers import Dense", True),
        ("def train():\n    import keras\n", True),
        ("try:\n    from keras import (\n        ops,\n    )\nexcept ImportError: pass\n", True),
        ("if True: import keras", True),
        ("# import keras", False),
        ("'''\nimport keras\n'''", False),
        ("import keras_tuner", False),
        ("from mine import keras", False),
        ("from .keras import ops", False),
        ("import keras(", False),
        ("keras = 1", False),
    ],
)
def test_the_file_that_imports_a_package_is_found(
    tmp_path: Path, text: str, is_import: bool
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.py").write_text("import os\n")
    (tmp_path / "b" / "model.py").write_text(text)

    found = file_that_imports(take_snapshot(tmp_path), "keras")

    assert found == ("b/model.py" if is_import else None)
