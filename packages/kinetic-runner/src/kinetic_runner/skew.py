"""Two fingerprints, of where a call was pickled and where it runs, compared in words."""

from __future__ import annotations

from typing import NamedTuple


class Fingerprint(NamedTuple):
    """What decides whether one Python can load what another one pickled."""

    python: str
    """Full version, `3.11.7`."""
    cloudpickle: str
    """Full version, `3.1.1`."""


class Skew(NamedTuple):
    """One difference that can break unpickling, and what would mend it."""

    warning: str
    advice: str


def skews_of(client: Fingerprint, here: Fingerprint) -> tuple[Skew, ...]:
    """Return the differences between *client* and *here* that matter to a pickle.

    Patch releases do not; a version that cannot be read is never taken for a difference.
    """
    found = []
    if _differ(client.python, here.python):
        found.append(
            Skew(
                f"The call was written by Python {_minor(client.python)} and is read by Python "
                f"{_minor(here.python)}; functions that travel by value are not loaded.",
                f"Submit from Python {_minor(here.python)}, or run the job with Python "
                f"{_minor(client.python)}; functions of the project's modules travel by reference.",
            )
        )
    if _differ(client.cloudpickle, here.cloudpickle):
        found.append(
            Skew(
                f"The call was pickled by cloudpickle {client.cloudpickle} and is loaded by "
                f"cloudpickle {here.cloudpickle}.",
                f"Use cloudpickle {_minor(client.cloudpickle)} at both ends.",
            )
        )
    return tuple(found)


def leading(skews: tuple[Skew, ...], message: str) -> str:
    """Put what differs, and what to do about it, before the *message* of a failed unpickling."""
    if not skews:
        return message
    return " ".join([*(skew.warning for skew in skews), message, *(skew.advice for skew in skews)])


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and _minor(one) != _minor(other)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
