"""Errors in finding, reading and installing dependencies."""

from __future__ import annotations

from kinetic_payload.errors import (
    InvalidRequestError,
    KineticError,
    LoginRequiredError,
    UnavailableError,
)


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


class InvalidReferenceError(InvalidRequestError):
    """A text is not the address of an image."""


class RegistryError(KineticError):
    """A request to a registry failed."""


class ImageNotFoundError(RegistryError, InvalidRequestError):
    """The registry has no such image, or none for the wanted platform."""


class RegistryLoginError(RegistryError, LoginRequiredError):
    """The registry does not accept the credentials (401), or there are none."""


class RegistryPermissionError(RegistryError, PermissionError):
    """The registry accepts the credentials, but they do not permit the request (403)."""


class RegistryUnavailableError(RegistryError, UnavailableError):
    """The registry was not reached, is overloaded (429), or failed (5xx), also when asked again."""


class InvalidImageError(RegistryError):
    """What a registry returned is no usable image: a malformed manifest, or bytes with another digest."""


class BuildError(KineticError, RuntimeError):
    """An image could not be built; the message contains the end of the build's log."""


class InvalidWheelError(BuildError):
    """A wheel does not follow the specification of wheels, or is damaged."""


class DownloadError(BuildError):
    """A locked package could not be downloaded, or is not the file that was locked."""


class DownloadLoginError(DownloadError, LoginRequiredError):
    """The server of a package requires other credentials (401, 403)."""


class DownloadUnavailableError(DownloadError, UnavailableError):
    """The server of a package was not reached, or failed each time."""


class BuildInputError(BuildError, InvalidRequestError):
    """A build's input cannot be used: a file is missing or has changed, or an address has credentials."""


class BuildTimeoutError(BuildError, TimeoutError):
    """A build took longer than its time limit, or waited too long in a queue."""


class BuildCancelledError(BuildError):
    """A build was cancelled, and not by this process."""


class BuilderError(KineticError):
    """The program or service that builds images cannot be used."""


class DockerNotFoundError(BuilderError, FileNotFoundError):
    """There is no docker on this machine that can build with BuildKit and secrets."""


class DockerUnavailableError(BuilderError, UnavailableError):
    """The docker engine is not running, or this user must not use it."""


class BuildServiceLoginError(BuilderError, LoginRequiredError):
    """Cloud Build does not accept the credentials, or there are none."""


class BuildServicePermissionError(BuilderError, PermissionError):
    """The user, or a service account, lacks a role; the hint names it."""


class BuildServiceDisabledError(BuilderError):
    """The Cloud Build API is not enabled in the project."""


class BuildQuotaError(BuilderError):
    """The project's quota of Cloud Build is used up, or does not allow this build."""


class BuildServiceUnavailableError(BuilderError, UnavailableError):
    """Cloud Build did not respond within the time limit; a build that was started continues."""


class InvalidBuildError(BuilderError, InvalidRequestError):
    """Cloud Build rejects the request: an unknown region, service account or project."""
