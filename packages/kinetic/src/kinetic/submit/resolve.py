"""From a decorated function to its request: settings and captured variables as they are now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinetic.settings.settings import Settings, environment, working_folder
from kinetic.submit.options import CheckedOptions
from kinetic.submit.request import JobRequest, resolve_request, settings_arguments


def request_of(options: CheckedOptions, function: Callable[..., Any]) -> JobRequest:
    """Resolve the settings of this process and decide what the job is.

    Raises:
        InvalidRequestError: Something cannot be right; nothing was done yet.
    """
    settings = Settings.from_environment(**settings_arguments(options.given))
    return resolve_request(options, function, settings, environ=environment(), cwd=working_folder())
