"""The README's example of this package alone runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "packages" / "kinetic-images" / "README.md"


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    expected = re.findall(r"^print\(.*\)  # (.*)$", blocks[0], re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == expected
