"""The README's example of this package alone runs as it stands."""

from __future__ import annotations

from collections.abc import Callable


def test_the_example_prints_what_the_readme_says(run_readme: Callable[[], None]) -> None:
    run_readme()
