"""Errors in finding, reading and installing dependencies."""

from __future__ import annotations

from kinetic_payload.errors import InvalidRequestError, KineticError


class DependencyError(InvalidRequestError):
    """A declared dependency cannot be read or used; the message begins with its file and line."""


class UvNotFoundError(KineticError, FileNotFoundError):
    """No usable uv was found on this machine."""


class InstallError(KineticError, RuntimeError):
    """uv failed; `output` is what it printed, without credentials.

    `places` are the lines of the user's files that the output refers to, as `file:line`.
    """

    output: str = ""
    places: tuple[str, ...] = ()
    killed: bool = False
    """Whether a signal ended uv; then its input may be correct."""
