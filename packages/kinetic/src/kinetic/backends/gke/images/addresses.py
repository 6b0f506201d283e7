"""Addresses of images and repositories in settings."""

from __future__ import annotations

from kinetic.errors import ConfigurationError, InvalidRequestError


def check_address(source: str, address: str) -> None:
    """Refuse an *address* that is not that of an image; *source* is the setting.

    Raises:
        ConfigurationError: The message names the setting.
    """
    from kinetic_images.registry.names import parse_reference

    try:
        parse_reference(address)
    except InvalidRequestError as error:
        raise ConfigurationError(f"{source}: {error.message}", hint=error.hint) from error


def check_repository(source: str, repository: str, image: str) -> None:
    """Refuse a *repository* in which there can be no *image*; *source* is the setting.

    Messages show the repository as it was written, not the image in it.

    Raises:
        ConfigurationError: The message names the setting.
    """
    from kinetic_images.registry.names import parse_reference

    try:
        parse_reference(f"{repository.rstrip('/')}/{image}")
    except InvalidRequestError as error:
        check_address(source, repository.rstrip("/"))
        # Only the image is not valid: a repository has neither a tag nor a digest.
        raise ConfigurationError(
            f"{source}: {repository!r} is not a repository, in which there can be {image}.",
            hint="Write HOST/PATH, without a tag and without a digest.",
        ) from error
