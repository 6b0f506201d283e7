"""Names of images: `HOST/PATH:TAG@DIGEST`, as docker reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from kinetic_images.errors import InvalidReferenceError

DOCKER_HUB: Final = "docker.io"
_DOCKER_HUB_NAMES: Final = frozenset({"index.docker.io", "registry-1.docker.io"})
"""Other names of Docker Hub."""
_LONGEST: Final = 255
"""The most characters of host and path together, as in docker."""

_LARGEST_PORT: Final = 65535

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The name of an image or of a repository. Its text is complete: it contains the host."""

    host: str
    """The registry, with its port if one was given: `docker.io`, `127.0.0.1:5000`."""
    path: str
    """The repository in the registry: `library/python`."""
    tag: str | None = None
    digest: str | None = None
    """`sha256:` and 64 hexadecimal digits."""

    @property
    def repository(self) -> str:
        """`HOST/PATH`, without tag and digest."""
        return f"{self.host}/{self.path}"

    @property
    def version(self) -> str:
        """What selects the image in its repository: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or "latest"

    def tagged(self, tag: str) -> Reference:
        """Return the name of the image with *tag* in the same repository.

        Raises:
            InvalidReferenceError: *tag* is no valid tag.
        """
        if not _TAG.fullmatch(tag):
            raise InvalidReferenceError(
                f"{tag!r} is no tag of an image.",
                hint="A tag has up to 128 letters, digits, `_`, `.` and `-`, and begins with none of `.` and `-`.",
            )
        return replace(self, tag=tag, digest=None)

    def at(self, digest: str) -> Reference:
        """Return the name of the image with *digest* in the same repository.

        Raises:
            InvalidReferenceError: *digest* is no digest.
        """
        if not is_digest(digest):
            raise InvalidReferenceError(f"{digest!r} is no digest.", hint=_HINT)
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


def is_digest(text: str) -> bool:
    """Return whether *text* is `sha256:` and 64 hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def is_google(host: str) -> bool:
    """Return whether *host* is a registry of Google's, which accepts tokens of Google accounts."""
    name = host.partition(":")[0]
    return name.endswith((".pkg.dev", ".gcr.io")) or name == "gcr.io"


def parse_reference(text: str) -> Reference:
    """Read `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.

    Without a host, the image is one of Docker Hub, and a path of one part begins with `library/`.

    Raises:
        InvalidReferenceError: *text* is no such name. Its message contains no credentials.
    """
    name, at, digest = text.partition("@")
    # As for docker, a first part without `.` or `:` is no host.
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost"
    host, path = (first.lower(), rest) if slash and is_host else (DOCKER_HUB, name)
    host = DOCKER_HUB if host in _DOCKER_HUB_NAMES else host
    path, colon, tag = path.partition(":")
    if host == DOCKER_HUB and path and "/" not in path:
        path = f"library/{path}"
    port = host.rpartition(":")[2]
    checks = (
        (not _SCHEME.match(text), "it begins with a scheme"),
        (not at or is_digest(digest), "what follows `@` is no digest"),
        (not colon or _TAG.fullmatch(tag), f"{tag!r} is no tag"),
        (
            _HOST.fullmatch(host) and not (port.isdecimal() and int(port) > _LARGEST_PORT),
            f"{host!r} is no host",
        ),
        (_PATH.fullmatch(path), f"{path!r} is no path in lower case"),
        (len(f"{host}/{path}") <= _LONGEST, f"host and path have more than {_LONGEST} characters"),
    )
    for valid, why in checks:
        if not valid:
            # Without what may be a user and a password.
            before, _, after = text.rpartition("@")
            is_digest_like = after.startswith("sha") and "@" not in before and "/" not in after
            shown = text if not before or is_digest_like else f"…@{after}"
            raise InvalidReferenceError(f"{shown!r} is no name of an image: {why}.", hint=_HINT)
    return Reference(host=host, path=path, tag=tag or None, digest=digest or None)


_HINT: Final = (
    "Write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST, such as us-docker.pkg.dev/project/repo/image:tag, without https:// and "
    "without a user: log in with `docker login HOST`."
)
