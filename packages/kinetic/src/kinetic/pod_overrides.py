"""Validate `pod_overrides`: parts of a pod template that are merged into that of a job's pods."""

from __future__ import annotations

import json
from typing import Any

from kinetic.errors import InvalidRequestError


def check_pod_overrides(value: object, source: str = "pod_overrides") -> dict[str, Any]:
    """Return a copy of *value*, which was read from *source*, as JSON has it.

    Raises:
        InvalidRequestError: It is not an object of JSON.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{source}={value!r} is not a dict.", hint=_EXAMPLE)
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"{source}={value!r} cannot be written as JSON: {error}.",
            hint=f"Use dicts, lists, text, numbers, True, False and None. {_EXAMPLE}",
        ) from error
    copy: dict[str, Any] = json.loads(text)
    return copy


_EXAMPLE = "Write pod_overrides={'spec': {'priorityClassName': 'batch'}}."
