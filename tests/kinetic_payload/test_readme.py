"""The README's example of this package alone runs as it stands."""

from __future__ import annotations

from collections.abc import Callable


def test_the_readmes_example_prints_its_shown_output(run_readme: Callable[[], None]) -> None:
    run_readme()
