"""Names of the objects that belong to a job."""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.errors import InvalidRequestError

LONGEST_NAME: Final = 63
"""The maximum length of a Job's name, which is also the value of a label of its pods."""
LONGEST_PATHWAYS_NAME: Final = 22
"""The address of the head contains the name twice, and is the value of a label: `N-pathways-head-0-0.N`."""
KEY_SECRET: Final = "kinetic-key"  # noqa: S105 - a name
"""The Secret with the signing key of a namespace."""
KEY_IN_SECRET: Final = "key"  # noqa: S105 - a name
"""The entry of that Secret that contains the key, in hexadecimal."""
CONTAINER: Final = "kinetic"
"""The container that runs the command."""

LONGEST_SUBDOMAIN: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ENVIRONMENT_SUFFIX: Final = "-env"
_DIGEST_LENGTH: Final = 40
_RUNNER: Final = "kn-runner-"


def environment_secret_name(job: str) -> str:
    """Return the name of the Secret with the captured environment of *job*."""
    return f"{job}{_ENVIRONMENT_SUFFIX}"


def runner_config_map_name(digest: str) -> str:
    """Return the name of the ConfigMap with the file whose SHA-256 is *digest*."""
    return f"{_RUNNER}{digest[:_DIGEST_LENGTH]}"


def is_runner_config_map(name: str) -> bool:
    """Return whether *name* is one of `runner_config_map_name`."""
    return name.startswith(_RUNNER)


def check_host_names(names: tuple[str, ...]) -> None:
    """Raise unless the first part of each of *names* can be the name of a pod, which begins with a letter.

    Raises:
        InvalidRequestError: One is too long, or has characters that Kubernetes rejects.
    """
    for name in names:
        first = name.partition(".")[0]
        check_job_name(first)
        if not first[0].isalpha():
            raise InvalidRequestError(
                f"{first!r} cannot be the name of a host: it does not begin with a letter."
            )


def check_pathways_name(name: str) -> None:
    """Raise unless *name* can be the name of a workload of Pathways.

    Raises:
        InvalidRequestError: It is too long, has characters that Kubernetes rejects, or begins with a digit.
    """
    if len(name) > LONGEST_PATHWAYS_NAME:
        raise InvalidRequestError(
            f"{name!r} ({len(name)} characters) cannot be the name of a workload of Pathways.",
            hint=f"Use at most {LONGEST_PATHWAYS_NAME} characters: names of pods begin with it.",
        )
    check_host_names((name,))


def is_namespace_name(text: str) -> bool:
    """Return whether *text* can be the name of a namespace."""
    return len(text) <= LONGEST_NAME and _LABEL.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Return whether *text* can be the name of a ServiceAccount, and of most other objects."""
    parts = text.split(".")
    return len(text) <= LONGEST_SUBDOMAIN and all(_LABEL.fullmatch(part) for part in parts)


def check_job_name(name: str) -> None:
    """Raise unless *name* can be the name of a Job.

    Raises:
        InvalidRequestError: It is too long, or has characters that Kubernetes rejects.
    """
    if len(name) > LONGEST_NAME or not _LABEL.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} ({len(name)} characters) cannot be the name of a Job.",
            hint=f"Use at most {LONGEST_NAME} lower-case letters, digits and '-'; "
            "begin and end with a letter or digit.",
        )
