"""Submitted jobs: their handles, and the code that every backend shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinetic.jobs.handle import JobHandle as JobHandle

__all__ = ["JobHandle"]

if not TYPE_CHECKING:  # it would make every name look public

    def __getattr__(name: str) -> Any:
        # Loaded on first use: a supervisor imports other modules of this package, but not the handle.
        if name != "JobHandle":
            raise AttributeError(f"module 'kinetic.jobs' has no attribute {name!r}")
        from kinetic.jobs.handle import JobHandle

        return JobHandle
