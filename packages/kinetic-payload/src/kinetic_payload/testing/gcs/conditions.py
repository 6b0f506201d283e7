"""Preconditions: what a caller expects an object or bucket to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kinetic_payload.testing.gcs.answers import ApiError, invalid, not_so


@dataclass(frozen=True)
class Conditions:
    """The four that every call may carry. A generation of 0 means: there is none."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None

    def check(self, found: tuple[int, int] | None, *, reading: bool = False) -> None:
        """Refuse if what was *found* (generation, metageneration; None: nothing) is not as expected."""
        generation, metageneration = found or (0, None)
        if self.generation is not None and generation != self.generation:
            raise not_so()
        if self.metageneration is not None and metageneration != self.metageneration:
            raise not_so()
        unchanged = (self.generation_not is not None and generation == self.generation_not) or (
            self.metageneration_not is not None and metageneration == self.metageneration_not
        )
        if unchanged and reading:
            raise ApiError(304, "notModified", "Not Modified")
        if unchanged:
            raise not_so("If-None-Match")


def conditions_of(number: Callable[[str], int | None], prefix: str = "if") -> Conditions:
    """Read them from a query: `ifGenerationMatch` and so on, or `ifSource…` with that *prefix*."""
    names = (
        "GenerationMatch",
        "GenerationNotMatch",
        "MetagenerationMatch",
        "MetagenerationNotMatch",
    )
    found = [number(prefix + name) for name in names]
    if any(value is not None and value < 0 for value in found):
        raise invalid("Preconditions must not be negative.")
    return Conditions(*found)
