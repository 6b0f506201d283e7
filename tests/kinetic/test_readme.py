"""The README's example of this package alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def test_the_example_prints_what_the_readme_shows(
    run_readme: Callable[[], None], warm: Callable[[Path], Path], tmp_path: Path
) -> None:
    warm(tmp_path / "home")  # The example uses this home, and would make the runner's bundle.
    run_readme()
