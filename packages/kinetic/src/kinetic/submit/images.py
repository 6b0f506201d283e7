"""Parse `container_image`: the default, a mode by name, or an image's address."""

from __future__ import annotations

import re
from typing import Final, Literal

from kinetic.errors import InvalidRequestError
from kinetic_payload.frozen import frozen

ImageMode = Literal["default", "bundled", "prebuilt", "custom"]

_KEYWORDS: Final = ("bundled", "prebuilt")
# [host[:port]/]path[:tag][@digest], as registries have it.
_ADDRESS: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)


_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@frozen()
class ContainerImage:
    """The environment in which the function runs."""

    mode: ImageMode
    """`default` means bundled on a cluster, and the interpreter that submits on this machine."""
    uri: str | None = None
    """The address, if the mode is `custom`."""


def parse_container_image(text: object) -> ContainerImage:
    """Parse the argument `container_image`.

    Raises:
        InvalidRequestError: It is neither a mode nor the address of an image.
    """
    if text is None:
        return ContainerImage("default")
    if text == "bundled":
        return ContainerImage("bundled")
    if text == "prebuilt":
        return ContainerImage("prebuilt")
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(f"container_image={text!r} names no image.", hint=_HINT)
    if not any(mark in text for mark in "/:@."):
        import difflib

        near = difflib.get_close_matches(text.strip().lower(), _KEYWORDS, n=1, cutoff=0.6)
        if near:
            raise InvalidRequestError(
                f"container_image={text!r} is not a mode.", hint=f"Did you mean {near[0]!r}?"
            )
        raise InvalidRequestError(
            f"container_image={text!r} is neither a mode nor the address of an image.",
            hint=f"For an image of Docker Hub write its tag, too: '{text.strip()}:latest'. {_HINT}",
        )
    if not _ADDRESS.fullmatch(text):
        meant = _in_lower_case("".join(text.split()).rpartition("://")[2])
        raise InvalidRequestError(
            f"container_image={text!r} is not the address of an image{_why_not(text)}.",
            hint=f"Did you mean {meant!r}?" if _ADDRESS.fullmatch(meant) else _HINT,
        )
    return ContainerImage("custom", text)


def _why_not(text: str) -> str:
    """Return the reason why *text* is not an address, or nothing if it is not a common one."""
    if "://" in text:
        return ": it begins with a scheme"
    if any(character.isspace() for character in text):
        return ": it contains a space"
    if _ADDRESS.fullmatch(_in_lower_case(text)):
        return ": its path has capital letters"
    digest = text.partition("@")[2]
    if digest and not _DIGEST.fullmatch(digest):
        return ": its digest is not sha256: and 64 hexadecimal digits"
    return ""


def _in_lower_case(text: str) -> str:
    """Return *text* with its path in lower case; its tag may have capital letters."""
    address, at, digest = text.partition("@")
    path, colon, tag = address.rpartition(":")
    if not colon or "/" in tag:  # The colon is that of a port.
        return f"{address.lower()}{at}{digest}"
    return f"{path.lower()}{colon}{tag}{at}{digest}"


_HINT: Final = (
    "Use None, 'bundled', 'prebuilt', or an address such as "
    "'us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG'."
)
