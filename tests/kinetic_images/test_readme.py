"""The README's example of this package alone runs as it stands."""

from __future__ import annotations

from collections.abc import Callable


def test_the_example_of_the_readme_prints_the_promised_lines(
    run_readme: Callable[[], None],
) -> None:
    run_readme()
