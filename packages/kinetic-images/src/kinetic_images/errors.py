"""The errors of finding, reading and installing dependencies."""

from __future__ import annotations

from kinetic_payload.errors import InvalidRequestError, KineticError


class DependencyError(InvalidRequestError):
    """A declared dependency cannot be read or used; the message begins with its file and line."""


class UvNotFoundError(KineticError, FileNotFoundError):
    """There is no uv on this machine that we can use."""


class InstallError(KineticError, RuntimeError):
    """uv could not do what was asked; `output` holds its own words, without credentials.

    `places` are the lines of the user's files that it names, as `file:line`.
    """

    output: str = ""
    places: tuple[str, ...] = ()
    killed: bool = False
    """Whether a signal ended uv: that says nothing about what it was asked to do."""
