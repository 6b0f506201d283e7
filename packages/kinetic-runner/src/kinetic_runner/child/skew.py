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
    """One difference that can break unpickling."""

    text: str
    """The difference, and how to remove it."""
    silent: bool = False
    """Whether it is printed only if something fails."""


def skews_of(client: Fingerprint, here: Fingerprint) -> tuple[Skew, ...]:
    """Return the differences between *client* and *here* that matter to a pickle.

    Differences of patch releases do not matter, nor do versions that cannot be read.
    """
    found = []
    theirs, ours = _minor(client.python), _minor(here.python)
    if theirs and ours and theirs != ours:
        found.append(
            Skew(
                f"The call was written by Python {theirs} and is read by Python {ours}; functions that travel "
                f"by value are not loaded. Submit from Python {ours}, or run the job with Python {theirs}; "
                "functions of the project's modules travel by reference."
            )
        )
    theirs, ours = _minor(client.cloudpickle), _minor(here.cloudpickle)
    if theirs and ours and theirs != ours:
        found.append(
            Skew(
                f"The call was pickled by cloudpickle {client.cloudpickle} and is loaded by cloudpickle "
                f"{here.cloudpickle}. Use cloudpickle {theirs} at both ends."
            )
        )
    if client.platform and client.platform != here.platform:
        theirs, ours = _words(client.platform), _words(here.platform)
        text = (
            f"The call was pickled on {theirs} and runs on {ours}. Modules compiled for {theirs} cannot be "
            "loaded there: install them in the job from its requirements."
        )
        found.append(Skew(text, silent=True))
    return tuple(found)


def import_note(skews: tuple[Skew, ...], error: BaseException) -> str | None:
    """Return a note for an *error* of user code that the other platform may have caused, or None."""
    # These words are in the message of `dlopen` for a library of another system.
    library = isinstance(error, OSError) and any(word in str(error) for word in _OTHER_LIBRARY)
    if library or isinstance(error, ImportError):
        return next((skew.text for skew in skews if skew.silent), None)
    return None


def _words(platform: str) -> str:
    system, _, machine = platform.partition("-")
    return f"{_SYSTEMS.get(system, system)} {machine}".rstrip()


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
