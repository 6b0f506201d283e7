"""From a decorated function to its request: settings and captured variables as they are now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinetic.errors import InvalidRequestError
from kinetic.options import CheckedOptions
from kinetic.request import JobRequest, resolve_request, settings_arguments
from kinetic.settings import Settings, environment, working_folder


def request_of(options: CheckedOptions, function: Callable[..., Any]) -> JobRequest:
    """Resolve the settings of this process and decide what the job is.

    Raises:
        InvalidRequestError: Something cannot be right; nothing was done yet.
    """
    settings = Settings.from_environment(**settings_arguments(options.given))
    request = resolve_request(
        options, function, settings, environ=environment(), cwd=working_folder()
    )
    if request.debug and request.local and request.image.mode == "default":
        _check_debugpy()
    return request


def _check_debugpy() -> None:
    from importlib.util import find_spec

    if find_spec("debugpy") is None:
        raise InvalidRequestError(
            "debug=True needs debugpy, which this Python does not have.",
            hint="Install it: python -m pip install debugpy",
        )
