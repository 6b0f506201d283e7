"""Differences between the client that pickled a call and the host that runs it, in words."""

from __future__ import annotations

from typing import NamedTuple

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}
_OTHER_LIBRARY = ("ELF", "mach-o")


class Fingerprint(NamedTuple):
    """The versions that decide whether one Python can load what another one pickled."""

    python: str
    """Full version, `3.11.7`."""
    cloudpickle: str
    """Full version, `3.1.1`."""
    platform: str = ""
    """System and machine, `darwin-arm64`; empty where a call does not name it."""


class Skew(NamedTuple):
    """One difference that can break unpickling, and how to remove it."""

    warning: str
    advice: str
    silent: bool = False
    """Whether the warning is printed only if something fails."""


def skews_of(client: Fingerprint, here: Fingerprint) -> tuple[Skew, ...]:
    """Return the differences between *client* and *here* that matter to a pickle.

    Differences of patch releases do not matter, nor do versions that cannot be read.
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
    if client.platform and client.platform != here.platform:
        found.append(
            Skew(
                f"The call was pickled on {_words(client.platform)} and runs on "
                f"{_words(here.platform)}.",
                f"Modules compiled for {_words(client.platform)} cannot be loaded there: install them "
                "in the job from its requirements.",
                silent=True,
            )
        )
    return tuple(found)


def import_note(skews: tuple[Skew, ...], error: BaseException) -> str | None:
    """Return a note for an *error* of user code that the other platform may have caused, or None."""
    of_platform = [skew for skew in skews if skew.silent]
    # These words are in the message of `dlopen` for a library of another system.
    library = isinstance(error, OSError) and any(word in str(error) for word in _OTHER_LIBRARY)
    if not of_platform or not (library or isinstance(error, ImportError)):
        return None
    return " ".join(f"{skew.warning} {skew.advice}" for skew in of_platform)


def leading(skews: tuple[Skew, ...], message: str) -> str:
    """Return the *message* of a failed unpickling between the differences and the advice."""
    if not skews:
        return message
    return " ".join([*(skew.warning for skew in skews), message, *(skew.advice for skew in skews)])


def _words(platform: str) -> str:
    system, _, machine = platform.partition("-")
    return f"{_SYSTEMS.get(system, system)} {machine}".rstrip()


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and _minor(one) != _minor(other)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
