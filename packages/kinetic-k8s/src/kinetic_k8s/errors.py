"""The errors of this package."""

from __future__ import annotations

from kinetic_payload.errors import InvalidRequestError

__all__ = ["InvalidRequestError", "UnknownAcceleratorError"]


class UnknownAcceleratorError(InvalidRequestError):
    """No accelerator of that name, count or topology; the hint names the nearest that exist."""
