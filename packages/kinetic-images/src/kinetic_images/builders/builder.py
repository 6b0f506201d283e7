"""`Builder`: the protocol of everything that builds images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kinetic_images.recipe import Recipe
from kinetic_payload.progress import TrackProgress, silent


@dataclass(frozen=True, kw_only=True)
class BuildReports:
    """Where a builder reports its progress."""

    line: Callable[[str], None] = lambda _: None
    """Report a step, or a line of the build's log."""
    progress: TrackProgress = silent
    """Track work on bytes: downloads, uploads."""


class Builder(Protocol):
    """Builds an image and pushes it."""

    @property
    def name(self) -> str:
        """`layers`, `cloud_build` or `docker`."""
        ...

    def obstacle(self, recipe: Recipe) -> str | None:
        """Return why this builder cannot build *recipe*, as a sentence; None if it can."""
        ...

    def check(self, recipe: Recipe, image: str) -> None:
        """Refuse what certainly cannot be built, or pushed as *image*, before anything is uploaded or built.

        Raises:
            BuildInputError: The build needs credentials, and has none.
            RegistryError: This process pushes the image itself, and the registry does not accept it.
        """
        ...

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        """Build *recipe*, push it as *image* (`HOST/PATH:TAG`), and return its digest (`sha256:…`).

        The tag is written last: if this process ends early, the tag is absent or correct. If the tag
        exists by then, its image is adopted.

        Raises:
            BuildError: The build failed; the message contains the end of its log.
            RegistryError: The image cannot be pushed.
        """
        ...
